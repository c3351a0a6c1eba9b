import { globSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** A message of a corpus: where it is, and its bytes as SMTP carries them. */
export interface CorpusMessage {
  readonly name: string;
  readonly bytes: Buffer;
}

/** Larger files are none of a corpus of messages. */
const MAX_BYTES = 20 * 1024 * 1024;
const HEADER = /^(?:From [^\n]*\n)?(?:[!-9;-~]+[ \t]*:[^\n]*\r?\n(?:[ \t][^\n]*\r?\n)*){2}/;
const MBOX = /^From [^\n]*\d\d:\d\d[^\n]*\n/;
const SEPARATOR = /\n(?=From [^\n]*\d\d:\d\d[^\n]*\n[!-9;-~]+:)/;

/** All messages in a folder and below: files that begin with a header, and those of mailboxes, each once. */
export function* readCorpus(dir: string): Iterable<CorpusMessage> {
  for (const name of globSync('**/*', { cwd: dir }).toSorted()) {
    const path = join(dir, name);
    const { size } = statSync(path);
    if (!statSync(path).isFile() || size === 0 || size > MAX_BYTES) continue;
    const text = readFileSync(path, 'latin1');
    if (!HEADER.test(text)) continue;
    const messages = MBOX.test(text) ? text.split(SEPARATOR).map((one) => one.replace(MBOX, '')) : [text];
    for (const [at, message] of messages.entries())
      yield {
        name: messages.length === 1 ? name : `${name}#${at + 1}`,
        bytes: Buffer.from(message.replace(/\r\n|\r|\n/g, '\r\n'), 'latin1'),
      };
  }
}
