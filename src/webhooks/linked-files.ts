import { createHash, createHmac, randomUUID, timingSafeEqual } from 'node:crypto';
import { type FileHandle, mkdir, open, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Task } from '../base/service.ts';
import { type Belief, createSteadiness } from '../queue/purge.ts';
import type { TokenSecret } from '../store/rows/hosts.ts';

// Attachments that a post names by a link instead of holding them. Each is a file of this host, named by the hash of its
// content; whoever has a link may fetch it until the link expires. A file is on the disk before its link is posted.

/** The path in front of the token of a link. */
export const LINKS_PATH = '/inbound-files/';

export interface LinkSettings {
  /** The folder of the files on this host. */
  readonly dir: string;
  /** Our URL as seen from outside, without a trailing slash. */
  readonly publicUrl: string;
  /** How long a link is good for, in milliseconds. */
  readonly keepMs: number;
}

/** What the render threads need to make links. */
export interface LinkPlace {
  readonly dir: string;
  /** The URL in front of a token. */
  readonly base: string;
  readonly secret: string;
  /** When links made now expire, in milliseconds since 1970. */
  readonly expiresAt: number;
}

/** unknown: not one of our links · expired: it was one · missing: its file is not on this host. */
export type Opened =
  | { readonly kind: 'file'; readonly file: FileHandle; readonly size: number; readonly hash: string }
  | { readonly kind: 'unknown' | 'expired' | 'missing' };

export interface LinkedFiles {
  /** Throws `StoreAway` if the secret was never read and cannot be. */
  place(): Promise<LinkPlace>;
  /** Opens the file of a link; the caller closes it. Throws as `place`. */
  open(token: string): Promise<Opened>;
}

export function createLinkedFiles(
  { dir, publicUrl, keepMs }: LinkSettings,
  { tokenSecret, clock }: { readonly tokenSecret: TokenSecret; readonly clock: Clock },
): LinkedFiles {
  return frozen({
    async place() {
      const secret = await tokenSecret.read();
      return { dir, base: `${publicUrl}${LINKS_PATH}`, secret, expiresAt: clock.now() + keepMs };
    },
    async open(token) {
      const claim = readToken(await tokenSecret.read(), token);
      if (!claim) return { kind: 'unknown' };
      if (claim.expiresAt <= clock.now()) return { kind: 'expired' };
      try {
        // The name is a hash that we signed; nothing else of the request reaches it.
        const file = await open(join(dir, claim.hash), 'r');
        return { kind: 'file', file, size: (await file.stat()).size, hash: claim.hash };
      } catch (error) {
        if (isMissing(error)) return { kind: 'missing' };
        throw error;
      }
    },
  });
}

/**
 * Writes a file and returns its link. The file is synced first; one that is there already is only kept for longer. The
 * name at the end of the link is for people and ignored. Throws what the disk throws.
 */
export async function linkTo(
  { dir, base, secret, expiresAt }: LinkPlace,
  name: string,
  content: () => Iterable<Uint8Array>,
): Promise<string> {
  const sha256 = createHash('sha256');
  for (const bytes of content()) sha256.update(bytes);
  const hash = sha256.digest('hex');
  if (!(await touch(join(dir, hash)))) await write(dir, hash, content());
  // Also of a file that another thread has just made.
  await syncFolder(dir);
  const end = name === '' ? '' : `/${encodeURIComponent(name.toWellFormed())}`;
  return `${base}${toToken(secret, hash, expiresAt)}${end}`;
}

/** Whether the file was there. */
async function touch(path: string): Promise<boolean> {
  const now = new Date();
  try {
    await utimes(path, now, now);
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}

async function write(dir: string, hash: string, content: Iterable<Uint8Array>): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const path = join(dir, `${randomUUID()}${UNFINISHED}`);
  try {
    const file = await open(path, 'wx', 0o600);
    try {
      for (const bytes of content) await file.writeFile(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(path, join(dir, hash));
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  }
}

async function syncFolder(dir: string): Promise<void> {
  const folder = await open(dir, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

const UNFINISHED = '.tmp';
const OURS = /^(?:[0-9a-f]{64}|[0-9a-f-]{36}\.tmp)$/;
const SECOND = 1000;

const isMissing = (error: unknown): boolean => error instanceof Error && 'code' in error && error.code === 'ENOENT';

/** When it expires in seconds (base 36), what it leads to, and the seal of both. */
const TOKEN = /^([0-9a-z]{1,9})-([0-9a-f]{64})-([\w-]{43})$/;

function toToken(secret: string, hash: string, expiresAt: number): string {
  const until = Math.floor(expiresAt / SECOND).toString(36);
  return `${until}-${hash}-${sealOf(secret, until, hash).toString('base64url')}`;
}

function readToken(secret: string, token: string) {
  const [, until = '', hash = '', seal = ''] = TOKEN.exec(token) ?? [];
  // Computed whatever the token looks like, so that no answer is faster than another.
  const own = sealOf(secret, until, hash);
  const given = Buffer.from(seal, 'base64url');
  // Of several spellings of one seal only ours is valid.
  if (given.length !== own.length || !timingSafeEqual(given, own) || own.toString('base64url') !== seal)
    return undefined;
  return { hash, expiresAt: Number.parseInt(until, 36) * SECOND };
}

function sealOf(secret: string, until: string, hash: string): Buffer {
  return createHmac('sha256', secret).update(`inbound file\0${until}\0${hash}`).digest();
}

export interface ExpireLinksSettings extends Pick<LinkSettings, 'dir' | 'keepMs'> {
  /** The most bytes of all files. */
  readonly mostBytes: number;
}

/** Deletes the files whose links have expired, and the oldest ones while all together are too large. */
export function expireLinksTask(
  { dir, keepMs, mostBytes }: ExpireLinksSettings,
  { clock, log, time }: { readonly clock: Clock; readonly log: Log; readonly time: Belief },
): Task {
  const isSteady = createSteadiness(clock, time);
  return {
    perHost: true,
    async run() {
      const before = isSteady() ? clock.now() - keepMs : 0;
      const files = (await filesIn(dir)).toSorted((a, b) => a.at - b.at);
      let bytes = files.reduce((sum, { size }) => sum + size, 0);
      let expired = 0;
      let early = 0;
      for (const { name, size, at } of files) {
        if (at >= before && bytes <= mostBytes) break;
        await rm(join(dir, name), { force: true });
        bytes -= size;
        if (at < before) expired++;
        else early++;
      }
      if (early > 0) log.warn('attachment.removed_early', { removed: early, most_bytes: mostBytes });
      return expired + early > 0 ? { removed: expired + early, bytes } : undefined;
    },
  };
}

async function filesIn(dir: string) {
  const names = await readdir(dir).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  const files = [];
  for (const name of names.filter((one) => OURS.test(one))) {
    const found = await stat(join(dir, name)).catch(() => undefined);
    if (found) files.push({ name, size: found.size, at: found.mtimeMs });
  }
  return files;
}
