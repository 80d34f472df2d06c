// Receives signed CloudEvents with nothing but Node, and keeps each event once, by its id, in a file.
//
//     export EVENTLOG_SINK_SIGNING_SECRET=whsec_...     # for the publisher as well
//     node receiver.mjs events.jsonl 8080 20
//
// 20 is the number of seconds after which a request is dropped: less than sink.timeout, after which the publisher sends
// its events again.
//
// In eventlog.toml: [sink] type = "http", url = "http://localhost:8080/events"; [format] type = "cloudevents".

import { createHmac, timingSafeEqual } from 'node:crypto';
import { fsyncSync, ftruncateSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';

const [path, port, seconds] = process.argv.slice(2);
const secret = Buffer.from(process.env.EVENTLOG_SINK_SIGNING_SECRET.replace('whsec_', ''), 'base64');
const limit = 16 * 2 ** 20; // bytes of a request; the publisher divides one that is refused for its size
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

// Whether the publisher signed this body in the last five minutes (Standard Webhooks).
function isSigned(headers, body) {
  const moment = headers['webhook-timestamp'];
  if (!/^\d+$/.test(moment) || Math.abs(Date.now() / 1000 - Number(moment)) > 300) return false;
  const content = Buffer.concat([Buffer.from(`${headers['webhook-id']}.${moment}.`), body]);
  const expected = Buffer.from('v1,' + createHmac('sha256', secret).update(content).digest('base64'));
  const given = (headers['webhook-signature'] ?? '').split(' ').map((one) => Buffer.from(one));
  return given.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
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
  let size = 0;
  const until = performance.now() + 1000 * Number(seconds);
  request.on('data', (piece) => {
    if (response.writableEnded) return;
    size += piece.length;
    if (size <= limit) pieces.push(piece);
    else response.writeHead(413).end();
  });
  request.on('end', () => {
    if (response.writableEnded) return;
    const body = Buffer.concat(pieces);
    if (request.method !== 'POST' || request.url !== '/events') return void response.writeHead(404).end();
    if (performance.now() >= until) return void response.writeHead(503).end(); // the publisher may have sent newer events
    if (!isSigned(request.headers, body)) return void response.writeHead(401).end();
    try {
      const content = JSON.parse(body.toString());
      keep(Array.isArray(content) ? content : [content]);
      response.writeHead(204).end(); // all of it is kept
    } catch (error) {
      if (error.code) throw error; // the disk is full or the like: it ends without an answer, and all of it comes again
      response.writeHead(422).end(`cannot be applied: ${error.message}`); // the publisher finds out which event it is
    }
  });
});

server.listen(Number(port), '127.0.0.1', () => console.log(`listening on port ${server.address().port}`));
