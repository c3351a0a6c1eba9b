import { createHash, sign } from 'node:crypto';
import type { DkimKey } from './dns-keys.ts';

interface SealOptions {
  /** c= of the ARC-Message-Signature; left out: the tag is not there. */
  readonly c?: string;
  /** What it was signed with. */
  readonly form: 'simple' | 'relaxed';
  /** h= */
  readonly names: readonly string[];
}

/**
 * Puts the first ARC set in front of a message, written after RFC 8617 alone. The message has one line of body and no
 * fold.
 */
export function sealMessage(message: string, key: DkimKey, { c, form, names }: SealOptions): string {
  const [head = '', body = ''] = message.split('\r\n\r\n');
  const toForm = (line: string): string => (form === 'simple' ? line : relaxed(line));
  const signed = (data: string): string => sign('sha256', Buffer.from(data), key.privateKey).toString('base64');
  const results = 'ARC-Authentication-Results: i=1; mx.other.example; spf=pass';
  const tags = [
    'i=1',
    'a=rsa-sha256',
    ...(c === undefined ? [] : [`c=${c}`]),
    `d=${key.domain}`,
    `s=${key.selector}`,
    `h=${names.join(':')}`,
    `bh=${createHash('sha256').update(body).digest('base64')}`,
    'b=',
  ];
  const unsigned = `ARC-Message-Signature: ${tags.join('; ')}`;
  const fields = names
    .map((name) => head.split('\r\n').findLast((line) => line.toLowerCase().startsWith(`${name}:`)))
    .filter((line) => line !== undefined);
  const signature = unsigned + signed([...fields, unsigned].map(toForm).join('\r\n'));
  const seal = `ARC-Seal: i=1; a=rsa-sha256; cv=none; d=${key.domain}; s=${key.selector}; b=`;
  return `${seal}${signed([results, signature, seal].map(relaxed).join('\r\n'))}\r\n${signature}\r\n${results}\r\n${message}`;
}

/** RFC 6376 section 3.4.2. */
function relaxed(line: string): string {
  const colon = line.indexOf(':');
  return `${line.slice(0, colon).toLowerCase()}:${line
    .slice(colon + 1)
    .replace(/[ \t]+/g, ' ')
    .trim()}`;
}
