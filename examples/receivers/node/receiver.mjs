// Receives changes as CloudEvents with nothing but Node, and keeps each event once, by its id, in a file.
//
//     node receiver.mjs events.jsonl 8080 20
//
// 20 is the number of seconds after which a request is dropped: less than sink.timeout, after which the publisher sends
// its events again.
//
// In eventlog.toml: [sink] type = "http", url = "http://localhost:8080/events"; [format] type = "cloudevents".

import { fsyncSync, ftruncateSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';

const [path, port, seconds] = process.argv.slice(2);
const file = openSync(path, 'a+');
const known = new Set();

// What a crash has left of a last line was never answered, and comes again.
const kept = readFileSync(path);
const end = kept.lastIndexOf('\n') + 1;
ftruncateSync(file, end);
for (const line of kept.subarray(0, end).toString().split('\n').filter(Boolean)) known.add(keyOf(JSON.parse(line)));

function keyOf(event) {
  if (!event?.source || !event?.id) throw new TypeError('an event without source or id');
  return `${event.source} ${event.id}`;
}

function keep(events) {
  const fresh = new Map(events.map((event) => [keyOf(event), event]).filter(([key]) => !known.has(key)));
  if (fresh.size === 0) return;
  // What is to be done with the events goes here: with a database, in one transaction with the ids. Throw to refuse.
  writeFileSync(file, [...fresh.values()].map((event) => JSON.stringify(event) + '\n').join(''));
  fsyncSync(file);
  for (const key of fresh.keys()) known.add(key);
}

const server = createServer((request, response) => {
  const pieces = [];
  const until = performance.now() + 1000 * Number(seconds);
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => {
    if (request.method !== 'POST' || request.url !== '/events') return void response.writeHead(404).end();
    if (performance.now() >= until) return void response.writeHead(503).end(); // the publisher may have sent newer events
    try {
      const content = JSON.parse(Buffer.concat(pieces).toString());
      keep(Array.isArray(content) ? content : [content]);
      response.writeHead(204).end(); // all of it is kept
    } catch (error) {
      if (error.code) throw error; // the disk is full or the like: it ends without an answer, and all of it comes again
      response.writeHead(422).end(`cannot be applied: ${error.message}`); // the publisher finds out which event it is
    }
  });
});

server.listen(Number(port), '127.0.0.1', () => console.log(`listening on port ${server.address().port}`));
