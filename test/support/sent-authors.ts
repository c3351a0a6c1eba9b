import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { type AddressObject, simpleParser } from 'mailparser';
import PostalMime from 'postal-mime';
import { authorOfMessage } from '../../src/mail/addresses/author.ts';

/** Debian's Python; the first one on the PATH may be another. */
const PYTHON = '/usr/bin/python3';
const PROGRAM = new URL('./interop/authors.py', import.meta.url).pathname;

/** Whom several parsers of mail take for the authors of a message, each address once and in lower case. */
export async function authorsOf(raw: string): Promise<readonly string[]> {
  const found = new Set<string>();
  const bytes = Buffer.from(raw, 'latin1');
  const add = (address: string | undefined) => found.add((address ?? 'nobody').toLowerCase());
  add(authorOfMessage(bytes, '').mailbox?.address);
  for (const { value } of [(await simpleParser(bytes)).from].flatMap((from): AddressObject[] => (from ? [from] : [])))
    for (const { address, group = [] } of value)
      for (const one of group.length ? group : [{ address }]) add(one.address);
  const { from } = await new PostalMime().parse(bytes);
  add(from?.address);
  if (existsSync(PYTHON)) for (const address of python(bytes)) add(address);
  return [...found];
}

function python(bytes: Buffer): string[] {
  const { stdout, stderr, status } = spawnSync(PYTHON, [PROGRAM], {
    input: JSON.stringify([bytes.toString('base64')]),
    encoding: 'utf8',
    timeout: 60_000,
  });
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout)[0];
}
