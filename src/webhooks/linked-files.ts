import { createHash, createHmac, randomUUID, timingSafeEqual } from 'node:crypto';
import { type FileHandle, mkdir, open, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import type { DiskSpace } from '../base/disk-space.ts';
import { hasCode } from '../base/errors.ts';
import { frozen } from '../base/frozen.ts';
import type { Task } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import { syncFolder } from '../queue/disk/folder.ts';
import { type ClockTrust, createSteadiness } from '../queue/purge.ts';
import type { TokenSecret } from '../store/rows/hosts.ts';

// Attachments that a post replaces by a link. Each is a file of this host, named by the hash of its content; anyone who
// has a link may fetch it until the link expires. A file is on the disk before its link is posted, and stays until the
// link expires. Attachments beyond the limits stay in the post. Each account has a folder of claims, with an empty file
// for each of its linked files, to count its usage.

/** The path in front of the token of a link. */
export const LINKS_PATH = '/inbound-files/';

interface LinkSettings {
  /** The folder of the files on this host. */
  readonly dir: string;
  /** The folder of the claims of all accounts. */
  readonly claimsDir: string;
  /** Our URL as seen from outside, without a trailing slash. */
  readonly publicUrl: string;
  /** The lifetime of a link, in milliseconds. */
  readonly keepMs: number;
  /** Maximum bytes of all files. */
  readonly mostBytes: number;
}

/** The data with which the render threads make links. */
export interface LinkContext {
  readonly dir: string;
  /** The URL in front of a token. */
  readonly base: string;
  readonly secret: string;
  /** When links made now expire, in milliseconds since 1970. */
  readonly expiresAt: number;
  /** The folder of the account's claims. */
  readonly claims: string;
  /** Maximum bytes of files to add. */
  readonly room: number;
}

/** Bytes reserved for the links of a post, until `end`. */
interface LinkReservation {
  readonly reserve: LinkContext;
  /** `bytes`: how much was added. */
  end(bytes: number): void;
}

/** unknown: not one of our links · expired: it was one · missing: its file is not on this host. */
type OpenedLink =
  | { readonly kind: 'file'; readonly file: FileHandle; readonly size: number; readonly hash: string }
  | { readonly kind: 'unknown' | 'expired' | 'missing' };

export type LinkedFiles = ReturnType<typeof createLinkedFiles>;

/** An account may use up to this multiple of the bytes that remain free. */
const SHARE = 3;
/** How long a count is valid, and the shortest interval between two. Milliseconds. */
const COUNT_MS = 600_000;
const COUNT_AGAIN_MS = 10_000;
/** The interval between log lines about full storage. Milliseconds. */
const QUIET_MS = 60_000;
/** The account id for posts without an account: no account's id begins with a hyphen. */
export const NO_ACCOUNT = '-';

interface LinkedFilesDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly tokenSecret: TokenSecret;
  /** The disk space for data of accounts. */
  readonly growth: Pick<DiskSpace, 'left' | 'wrote'>;
}

export function createLinkedFiles(settings: LinkSettings, deps: LinkedFilesDeps) {
  const { dir, claimsDir, publicUrl, keepMs, mostBytes } = settings;
  const { tokenSecret, clock, log, growth } = deps;
  let counting: Promise<Count> | undefined;
  let countedAt = -Infinity;

  /** The last count, updated with later additions. */
  function counted(maxAgeMs: number): Promise<Count> {
    if (counting && clock.monotonic() - countedAt < maxAgeMs) return counting;
    countedAt = clock.monotonic();
    const next = count(dir, claimsDir);
    next.catch(() => {
      counting = undefined;
    });
    counting = next;
    return next;
  }

  /** Bytes that an account may add, so that it holds no more than its share afterwards. */
  function roomIn({ all, held }: Count, account: string): number {
    const left = Math.min(mostBytes - all, growth.left());
    return Math.max(0, Math.floor((SHARE * left - (held.get(account) ?? 0)) / (SHARE + 1)));
  }

  let warnedAt = -Infinity;
  function warn(account: string, room: number): void {
    if (clock.monotonic() - warnedAt < QUIET_MS) return;
    warnedAt = clock.monotonic();
    log.warn('attachment.no_room', { account, room, most_bytes: mostBytes });
  }

  return frozen({
    /**
     * Reserves up to `most` bytes for links of an account. Throws `StoreAway` if the secret is not in memory and cannot
     * be read.
     */
    async reserve(account: string, most: number): Promise<LinkReservation> {
      const secret = await tokenSecret.read();
      let seen = await counted(COUNT_MS);
      if (roomIn(seen, account) < most) seen = await counted(COUNT_AGAIN_MS);
      const room = roomIn(seen, account);
      if (room < most) warn(account, room);
      const add = (bytes: number) => {
        seen.all += bytes;
        seen.held.set(account, (seen.held.get(account) ?? 0) + bytes);
      };
      const reserved = Math.min(room, most);
      add(reserved);
      const claims = join(claimsDir, account);
      return {
        reserve: {
          dir,
          base: `${publicUrl}${LINKS_PATH}`,
          secret,
          expiresAt: clock.now() + keepMs,
          claims,
          room: reserved,
        },
        end(bytes) {
          add(bytes - reserved);
          growth.wrote(bytes);
        },
      };
    },
    /** Opens the file of a link; the caller closes it. Throws as `reserve`. */
    async open(token: string): Promise<OpenedLink> {
      const claim = readToken(await tokenSecret.read(), token);
      if (!claim) return { kind: 'unknown' };
      if (claim.expiresAt <= clock.now()) return { kind: 'expired' };
      try {
        // The name is a hash that we signed; nothing else of the request reaches it.
        const file = await open(join(dir, claim.hash), 'r');
        return { kind: 'file', file, size: (await file.stat()).size, hash: claim.hash };
      } catch (error) {
        if (hasCode(error, 'ENOENT')) return { kind: 'missing' };
        throw error;
      }
    },
  });
}

/** Bytes of all files, and of those that each account has claimed. */
interface Count {
  all: number;
  readonly held: Map<string, number>;
}

async function count(dir: string, claimsDir: string): Promise<Count> {
  const sizes = new Map((await filesIn(dir)).map(({ name, size }) => [name, size]));
  const held = new Map<string, number>();
  for (const account of await namesIn(claimsDir)) {
    const names = await namesIn(join(claimsDir, account));
    held.set(
      account,
      names.reduce((sum, name) => sum + (sizes.get(name) ?? 0), 0),
    );
  }
  return { all: [...sizes.values()].reduce((sum, size) => sum + size, 0), held };
}

/** A link, and the bytes that its file added to those of the account. */
interface Link {
  readonly url: string;
  readonly added: number;
}

/**
 * Writes and syncs a file and returns its link; undefined if it exceeds the limits. An existing file is only kept for
 * longer. The name at the end of the link is for people and is ignored. Throws if the disk fails.
 */
export async function linkTo(
  { dir, base, secret, expiresAt, claims, room }: LinkContext,
  name: string,
  content: () => Iterable<Uint8Array>,
): Promise<Link | undefined> {
  const sha256 = createHash('sha256');
  let size = 0;
  for (const bytes of content()) {
    sha256.update(bytes);
    size += bytes.byteLength;
  }
  const hash = sha256.digest('hex');
  const claim = join(claims, hash);
  const isOwn = (await touch(claim)) && (await touch(join(dir, hash)));
  if (!isOwn && size > room) return undefined;
  if (!isOwn) {
    // First, so that only files of older versions have no claim.
    await mkdir(claims, { recursive: true, mode: 0o700 });
    await (await open(claim, 'a', 0o600)).close();
    if (!(await touch(join(dir, hash)))) await write(dir, hash, content());
  }
  // Also for a file that another thread has just written.
  await syncFolder(dir);
  const end = name === '' ? '' : `/${encodeURIComponent(name.toWellFormed())}`;
  return { url: `${base}${toToken(secret, hash, expiresAt)}${end}`, added: isOwn ? 0 : size };
}

/** Extends the life of a file; false if it does not exist. */
async function touch(path: string): Promise<boolean> {
  const now = new Date();
  try {
    await utimes(path, now, now);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
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

const UNFINISHED = '.tmp';
const OURS = /^(?:[0-9a-f]{64}|[0-9a-f-]{36}\.tmp)$/;
const SECOND = 1000;

/** Expiry in seconds (base 36), hash of the file, and HMAC of both. */
const TOKEN = /^([0-9a-z]{1,9})-([0-9a-f]{64})-([\w-]{43})$/;

function toToken(secret: string, hash: string, expiresAt: number): string {
  const until = Math.floor(expiresAt / SECOND).toString(36);
  return `${until}-${hash}-${sealOf(secret, until, hash).toString('base64url')}`;
}

function readToken(secret: string, token: string) {
  const [, until = '', hash = '', seal = ''] = TOKEN.exec(token) ?? [];
  // Computed for every token, so that the response time reveals nothing.
  const own = sealOf(secret, until, hash);
  const given = Buffer.from(seal, 'base64url');
  // Several encodings decode to one HMAC; only ours is valid.
  if (given.length !== own.length || !timingSafeEqual(given, own) || own.toString('base64url') !== seal)
    return undefined;
  return { hash, expiresAt: Number.parseInt(until, 36) * SECOND };
}

function sealOf(secret: string, until: string, hash: string): Buffer {
  return createHmac('sha256', secret).update(`inbound file\0${until}\0${hash}`).digest();
}

export type ExpireLinksSettings = Pick<LinkSettings, 'dir' | 'claimsDir' | 'keepMs'>;

/** Deletes the files whose links have expired, and the claims to them. */
export function expireLinksTask(
  { dir, claimsDir, keepMs }: ExpireLinksSettings,
  { clock, time }: { readonly clock: Clock; readonly time: ClockTrust },
): Task {
  const isSteady = createSteadiness(clock, time);
  return {
    perHost: true,
    async run() {
      const before = isSteady() ? clock.now() - keepMs : 0;
      const expired = async (folder: string) => {
        const old = (await filesIn(folder)).filter(({ at }) => at < before);
        for (const { name } of old) await rm(join(folder, name), { force: true });
        return old;
      };
      for (const account of await namesIn(claimsDir)) await expired(join(claimsDir, account));
      const removed = await expired(dir);
      if (removed.length === 0) return undefined;
      return { removed: removed.length, bytes: removed.reduce((sum, { size }) => sum + size, 0) };
    },
  };
}

async function filesIn(dir: string) {
  const files = [];
  for (const name of (await namesIn(dir)).filter((one) => OURS.test(one))) {
    const found = await stat(join(dir, name)).catch(() => undefined);
    if (found) files.push({ name, size: found.size, at: found.mtimeMs });
  }
  return files;
}

/** The names in a folder; none if it is missing. */
async function namesIn(dir: string): Promise<string[]> {
  return readdir(dir).catch((error: unknown) => {
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  });
}
