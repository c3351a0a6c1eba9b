import { createHmac, timingSafeEqual } from 'node:crypto';
import { MINUTE_MS } from '../../base/clock.ts';
import { fromBase32Hex, toBase32Hex } from './base32hex.ts';

// Addresses whose local part has data sealed into it: `reply+r-<token>@in.example.com`. Nobody else can make one,
// change what is in it, or read it; and nothing has to be looked up to check it. Tokens are base 32 in lower case and
// are accepted in any case, because relays may change the case of local parts.

/** Octets of a local part (RFC 5321 section 4.5.3.1.1). */
const LONGEST_LOCAL = 64;
/** Between the mailbox and the token: ordinary tags (`support+news`) do not look like it. */
const MARK = '+r-';
/** The shortest token: a byte of data without an expiry. */
const REPLY_ADDRESS = /^(.{1,44})\+r-([0-9a-v]{20,60})$/s;

/** 80 bits, which cannot be guessed over SMTP. */
const SEAL_BYTES = 10;
const EXPIRY_BYTES = 4;
/** The first byte: the version, and what follows. */
const VERSION = 0x10;
const EXPIRES = 0x01;
/** The data is a UUID, as 16 bytes in place of 36 characters. */
const IS_UUID = 0x02;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** What a token is valid for: a mailbox of a domain, while it belongs to this account. */
export interface SealScope {
  readonly account: string;
  /** In lower-case A-labels. */
  readonly domain: string;
  /** In lower case. */
  readonly mailbox: string;
}

/** The data sealed into an address. */
interface Sealed {
  readonly data: string;
  /** Milliseconds since 1970, a full minute; null: it does not expire. */
  readonly expiresAt: number | null;
}

/** How many bytes of data fit an address of this mailbox. A UUID has 16. */
export function maxDataBytes(mailbox: string, expires: boolean): number {
  const bits = (LONGEST_LOCAL - mailbox.length - MARK.length) * 5;
  return Math.floor(bits / 8) - 1 - (expires ? EXPIRY_BYTES : 0) - SEAL_BYTES;
}

/** The bytes that data takes in an address. */
export const addressDataSize = (data: string): number => toBytes(data).length;

/** A time as an address can hold it: its minute, or the next. */
export const toFullMinute = (time: number): number => Math.ceil(time / MINUTE_MS) * MINUTE_MS;

/** The local part of an address with data sealed in. The data must fit (`maxDataBytes`). */
export function sealReplyAddress(key: string, scope: SealScope, { data, expiresAt }: Sealed): string {
  const bytes = toBytes(data);
  const head = VERSION | (expiresAt === null ? 0 : EXPIRES) | (UUID.test(data) ? IS_UUID : 0);
  const expiry = Buffer.alloc(expiresAt === null ? 0 : EXPIRY_BYTES);
  if (expiresAt !== null) expiry.writeUInt32BE(expiresAt / MINUTE_MS);
  const plain = Buffer.concat([Buffer.of(head), expiry, bytes]);
  const seal = sealOf(key, scope, plain);
  return `${scope.mailbox}${MARK}${toBase32Hex(Buffer.concat([seal, cipher(key, seal, plain)]))}`;
}

/** A local part that has the form of a reply address: the mailbox and the token. Undefined for any other. */
export function parseReplyAddress(local: string): { readonly mailbox: string; readonly token: string } | undefined {
  const [, mailbox, token] = REPLY_ADDRESS.exec(local.toLowerCase()) ?? [];
  return mailbox === undefined || token === undefined ? undefined : { mailbox, token };
}

/** The data sealed into a token with one of the keys; undefined if it is not valid here. */
export function openReplyToken(keys: readonly string[], scope: SealScope, token: string): Sealed | undefined {
  const bytes = fromBase32Hex(token);
  if (!bytes || bytes.length <= SEAL_BYTES) return undefined;
  const seal = bytes.subarray(0, SEAL_BYTES);
  for (const key of keys) {
    const plain = cipher(key, seal, bytes.subarray(SEAL_BYTES));
    if (timingSafeEqual(sealOf(key, scope, plain), seal)) return read(plain);
  }
  return undefined;
}

function read(plain: Buffer): Sealed | undefined {
  const head = plain[0] ?? 0;
  const from = 1 + (head & EXPIRES ? EXPIRY_BYTES : 0);
  if ((head & 0xf0) !== VERSION || plain.length < from) return undefined;
  const bytes = plain.subarray(from);
  return {
    data: head & IS_UUID ? toUuid(bytes) : bytes.toString('utf8'),
    expiresAt: head & EXPIRES ? plain.readUInt32BE(1) * MINUTE_MS : null,
  };
}

function sealOf(key: string, { account, domain, mailbox }: SealScope, plain: Buffer): Buffer {
  const about = `reply seal\0${account}\0${domain}\0${mailbox}\0`;
  return createHmac('sha256', key).update(about).update(plain).digest().subarray(0, SEAL_BYTES);
}

/** Encrypts and decrypts: each data has its own seal, and so a key stream of its own (as in SIV, RFC 5297). */
function cipher(key: string, seal: Buffer, bytes: Buffer): Buffer {
  const stream = createHmac('sha256', key).update('reply data\0').update(seal).digest();
  return Buffer.from(bytes.map((byte, i) => byte ^ (stream[i] ?? 0)));
}

function toBytes(data: string): Buffer {
  return UUID.test(data) ? Buffer.from(data.replaceAll('-', ''), 'hex') : Buffer.from(data, 'utf8');
}

const toUuid = (bytes: Buffer): string =>
  bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
