import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { normalizeAddress } from '../base/networks.ts';

/**
 * A parsed PROXY header (haproxy's proxy-protocol.txt, versions 1 and 2). client: the address of the client · local:
 * the proxy's own connection, such as a health check · more: incomplete · bad: missing or invalid.
 */
type ProxyHeader =
  | { readonly kind: 'client'; readonly address: string; readonly length: number }
  | { readonly kind: 'local'; readonly length: number }
  | { readonly kind: 'more' | 'bad' };

/** Reads the header from a socket, and leaves the bytes after it. `bad`: the deadline came, or the socket ended. */
export function readProxyHeader(socket: Socket, deadlineMs: number, clock: Clock): Promise<ProxyHeader> {
  return new Promise((resolve) => {
    let held: Buffer = Buffer.alloc(0);
    const finish = (header: ProxyHeader) => {
      cancel();
      socket.off('readable', read).off('end', giveUp).off('close', giveUp);
      resolve(header);
    };
    const giveUp = () => finish(BAD);
    const read = () => {
      const chunk: Buffer | null = socket.read();
      if (chunk === null) return;
      held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
      const header = parseProxyHeader(held);
      if (header.kind === 'more') return;
      if ('length' in header && header.length < held.length) socket.unshift(held.subarray(header.length));
      finish(header);
    };
    const cancel = clock.after(deadlineMs, giveUp);
    socket.on('readable', read).on('end', giveUp).on('close', giveUp);
  });
}

const MORE = { kind: 'more' } as const;
const BAD = { kind: 'bad' } as const;
const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const V1 = Buffer.from('PROXY ', 'latin1');
// The longest line of version 1, CRLF included.
const MAX_V1 = 107;
// Version 2 allows 64 KiB of extensions; proxies use far less.
const MAX_V2 = 4096;

/** Parses the header at the start of `bytes`. */
export function parseProxyHeader(bytes: Buffer): ProxyHeader {
  const signed = Math.min(bytes.length, SIGNATURE.length);
  if (bytes.subarray(0, signed).equals(SIGNATURE.subarray(0, signed)))
    return signed < SIGNATURE.length ? MORE : parseV2(bytes);
  const begun = Math.min(bytes.length, V1.length);
  return bytes.subarray(0, begun).equals(V1.subarray(0, begun)) ? parseV1(bytes) : BAD;
}

function parseV1(bytes: Buffer): ProxyHeader {
  const end = bytes.subarray(0, MAX_V1).indexOf('\r\n');
  if (end < 0) return bytes.length < MAX_V1 ? MORE : BAD;
  const line = bytes.toString('latin1', 0, end);
  if (/^PROXY UNKNOWN(?: |$)/.test(line)) return { kind: 'local', length: end + 2 };
  const parts = /^PROXY (TCP4|TCP6) ([\da-fA-F:.]+) ([\da-fA-F:.]+) (\d{1,5}) (\d{1,5})$/.exec(line);
  if (!parts) return BAD;
  const [, family, from = '', to = '', fromPort, toPort] = parts;
  const address = normalizeAddress(from);
  const fits = (text: string) => text.includes(':') === (family === 'TCP6') && normalizeAddress(text) !== undefined;
  if (address === undefined || !fits(from) || !fits(to) || Number(fromPort) > 65535 || Number(toPort) > 65535)
    return BAD;
  return { kind: 'client', address, length: end + 2 };
}

function parseV2(bytes: Buffer): ProxyHeader {
  if (bytes.length < 16) return MORE;
  const version = bytes.readUInt8(12);
  const family = bytes.readUInt8(13);
  const size = bytes.readUInt16BE(14);
  const length = 16 + size;
  if (version >> 4 !== 2 || (version & 15) > 1 || length > MAX_V2) return BAD;
  if (bytes.length < length) return MORE;
  // Command LOCAL, or a family that has no IP addresses (unspecified, unix): the connection counts as the proxy's own.
  if ((version & 15) === 0 || family >> 4 === 0 || family >> 4 === 3) return { kind: 'local', length };
  if (family === 0x11 && size >= 12) return client([...bytes.subarray(16, 20)].join('.'), length);
  if (family === 0x21 && size >= 36) return client(toHex(bytes.subarray(16, 32)), length);
  return BAD;
}

function client(text: string, length: number): ProxyHeader {
  const address = normalizeAddress(text);
  return address === undefined ? BAD : { kind: 'client', address, length };
}

function toHex(bytes: Buffer): string {
  return (bytes.toString('hex').match(/.{4}/g) ?? []).join(':');
}
