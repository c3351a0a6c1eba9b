import type { KeyObject } from 'node:crypto';
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import type { ZoneRecords } from './zone.ts';

/** A DKIM key made for a test, and the record that publishes it. */
export interface DkimKey {
  readonly domain: string;
  readonly selector: string;
  readonly algorithm: 'rsa-sha256' | 'rsa-sha1' | 'ed25519-sha256';
  readonly privateKey: KeyObject;
  readonly records: ZoneRecords;
}

/** Makes a key pair; `bits` for RSA, else Ed25519. */
export function makeKey(domain: string, selector: string, bits?: number): DkimKey {
  const { publicKey, privateKey } =
    bits === undefined ? generateKeyPairSync('ed25519') : generateKeyPairSync('rsa', { modulusLength: bits });
  const der = publicKey.export({ type: 'spki', format: 'der' });
  const text =
    bits === undefined
      ? `v=DKIM1; k=ed25519; p=${der.subarray(-32).toString('base64')}`
      : `v=DKIM1; k=rsa; p=${der.toString('base64')}`;
  return {
    domain,
    selector,
    privateKey,
    algorithm: bits === undefined ? 'ed25519-sha256' : 'rsa-sha256',
    records: { [`${selector}._domainkey.${domain}`]: { TXT: [text] } },
  };
}

interface SigningOptions {
  readonly algorithm?: DkimKey['algorithm'];
  /** The fields of h=. */
  readonly fields?: readonly string[];
  /** i= */
  readonly identity?: string;
  /** l=, in octets of the body. */
  readonly length?: number;
  /** Further tags, as they are. */
  readonly tags?: string;
}

/**
 * Signs a message with c=relaxed/simple, written after RFC 6376 alone, so that what it makes is no mirror of the
 * library under test. It signs whatever it is asked to, the unsound kinds too.
 */
export function signMessage(message: string, key: DkimKey, options: SigningOptions = {}): string {
  const [head = '', body = ''] = splitOnce(message, '\r\n\r\n');
  const algorithm = options.algorithm ?? key.algorithm;
  const fields = options.fields ?? ['from', 'to', 'subject'];
  const hash = algorithm === 'rsa-sha1' ? 'sha1' : 'sha256';
  const canonicalBody = body.replace(/(\r\n)*$/, '\r\n').slice(0, options.length);
  const tags = [
    'v=1',
    `a=${algorithm}`,
    'c=relaxed/simple',
    `d=${key.domain}`,
    `s=${key.selector}`,
    `h=${fields.join(':')}`,
    ...(options.identity === undefined ? [] : [`i=${options.identity}`]),
    ...(options.length === undefined ? [] : [`l=${options.length}`]),
    ...(options.tags === undefined ? [] : [options.tags]),
    `bh=${createHash(hash).update(canonicalBody, 'latin1').digest('base64')}`,
    'b=',
  ];
  const unsigned = `DKIM-Signature: ${tags.join('; ')}`;
  const lines = head.split(/\r\n(?![ \t])/);
  const signed = fields
    .map((name) => lines.findLast((line) => line.toLowerCase().startsWith(`${name}:`)))
    .filter((line) => line !== undefined);
  const data = Buffer.from([...signed, unsigned].map(relaxed).join('\r\n'), 'latin1');
  const signature =
    algorithm === 'ed25519-sha256'
      ? sign(null, createHash('sha256').update(data).digest(), key.privateKey)
      : sign(hash, data, key.privateKey);
  return `${unsigned}${signature.toString('base64')}\r\n${message}`;
}

function splitOnce(text: string, by: string): string[] {
  const at = text.indexOf(by);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + by.length)];
}

/** RFC 6376 section 3.4.2. */
function relaxed(line: string): string {
  const colon = line.indexOf(':');
  return `${line.slice(0, colon).trim().toLowerCase()}:${line
    .slice(colon + 1)
    .replace(/\r\n/g, '')
    .replace(/[ \t]+/g, ' ')
    .trim()}`;
}
