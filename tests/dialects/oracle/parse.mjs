// Parses every statement of a JSON array of texts by ANTLR's PL/SQL grammar; prints the errors of each as JSON.
// node parse.mjs FILE. One process for all: the grammar needs most of a minute to get warm.
import { readFileSync } from "node:fs";
import { CharStream, CommonTokenStream } from "antlr4";
import PlSqlLexer from "@griffithswaite/ts-plsql-parser/antlr/PlSqlLexer.js";
import PlSqlParser from "@griffithswaite/ts-plsql-parser/antlr/PlSqlParser.js";

function errorsOf(text) {
  const errors = [];
  const listener = {
    syntaxError: (_recognizer, _symbol, line, column, message) => errors.push(`line ${line}, column ${column}: ${message}`),
    reportAmbiguity() {},
    reportAttemptingFullContext() {},
    reportContextSensitivity() {},
  };
  const lexer = new PlSqlLexer(new CharStream(text));
  const parser = new PlSqlParser(new CommonTokenStream(lexer));
  for (const recognizer of [lexer, parser]) {
    recognizer.removeErrorListeners();
    recognizer.addErrorListener(listener);
  }
  parser.sql_script();
  return errors;
}

console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[2], "utf8")).map(errorsOf)));
