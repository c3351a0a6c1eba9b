import { spawnSync } from 'node:child_process';
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { until } from '../until.ts';

export type DiskKind = 'ext4' | 'xfs' | 'tmpfs';

/** A disk of its own, whose power can be cut. */
export interface Disk {
  /** Where it is mounted. */
  readonly path: string;
  /** Cuts the power: from now on every write fails, and what was not synced is gone. */
  cut(): void;
  /** Mounts it again; the journal is replayed. It must not be in use meanwhile. */
  remount(): Promise<void>;
  /** Unmounts it and forgets it. */
  remove(): Promise<void>;
}

const CUT = fileURLToPath(new URL('./cut.py', import.meta.url));
/** Debian's own: another one in the PATH may lack what it needs to run as root. */
const PYTHON = '/usr/bin/python3';

function run(program: string, args: readonly string[]): string | undefined {
  const { status, stderr, error } = spawnSync(program, args, { encoding: 'utf8' });
  return status === 0 ? undefined : `${program} ${args.join(' ')}: ${error?.message ?? stderr.trim()}`;
}

function must(program: string, ...args: readonly string[]): void {
  const trouble = run(program, args);
  if (trouble !== undefined) throw new Error(trouble);
}

/** Why there can be no such disk here, undefined when there can. */
export function noDisk(kind: DiskKind): string | undefined {
  if (process.getuid?.() !== 0) return `a ${kind} disk of its own needs root`;
  if (kind !== 'tmpfs' && run(`mkfs.${kind}`, ['-V']) !== undefined) return `mkfs.${kind} is not installed`;
  if (kind !== 'tmpfs' && run(PYTHON, ['-c', 'import fcntl']) !== undefined) return `${PYTHON} is not installed`;
  try {
    const disk = makeDisk(kind, 320);
    disk.unmount();
    disk.forget();
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function makeDisk(kind: DiskKind, megabytes: number) {
  const dir = mkdtempSync(join(tmpdir(), 'postern-disk-'));
  const image = join(dir, 'image');
  const path = mkdtempSync(join(tmpdir(), 'postern-mount-'));
  const mount = () => {
    if (kind === 'tmpfs') must('mount', '-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', path);
    else must('mount', '-t', kind, '-o', 'loop', image, path);
  };
  const forget = () => {
    rmSync(dir, { recursive: true, force: true });
    rmdirSync(path);
  };
  try {
    if (kind !== 'tmpfs') {
      writeFileSync(image, '');
      truncateSync(image, megabytes * 1024 * 1024);
      must(`mkfs.${kind}`, '-q', image);
    }
    mount();
  } catch (error) {
    forget();
    throw error;
  }
  return { path, image, mount, forget, unmount: () => must('umount', path) };
}

/** The processes that have files open on a disk, with one of them each. */
function holders(path: string): string[] {
  return readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .flatMap((pid) => {
      const held = run('sh', ['-c', `! ls -l /proc/${pid}/cwd /proc/${pid}/fd 2>/dev/null | grep -m 1 '${path}' >&2`]);
      return held === undefined ? [] : [`${readFileSync(`/proc/${pid}/comm`, 'utf8').trim()} ${pid}: ${held}`];
    });
}

/** The processes with a mount namespace of their own that has a copy of this mount, one of each namespace. */
function copiesOf(path: string): string[] {
  const seen = new Set([readlinkSync('/proc/self/ns/mnt')]);
  return readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .flatMap((pid) => {
      try {
        const space = readlinkSync(`/proc/${pid}/ns/mnt`);
        if (seen.has(space)) return [];
        seen.add(space);
        if (!readFileSync(`/proc/${pid}/mountinfo`, 'utf8').includes(` ${path} `)) return [];
        return [`${readFileSync(`/proc/${pid}/comm`, 'utf8').trim()} ${pid}`];
      } catch {
        return []; // it ended meanwhile
      }
    });
}

/** Whether no loop device is on the image any more. */
function isFree(image: string): boolean {
  const { status, stdout } = spawnSync('losetup', ['-j', image], { encoding: 'utf8' });
  return status === 0 && stdout.trim() === '';
}

/** Makes an empty disk and mounts it. XFS takes no disk below 300 MB. */
export function openDisk(kind: DiskKind, megabytes: number): Disk {
  const disk = makeDisk(kind, megabytes);
  // A process that was just killed may still hold its files for a moment.
  let isMounted = true;
  const unmount = async () => {
    let trouble: string | undefined;
    const isUnmounted = () => {
      trouble = isMounted ? run('umount', [disk.path]) : undefined;
      isMounted = trouble !== undefined;
      return !isMounted;
    };
    await until('the disk to be let go', isUnmounted, 120_000).catch((error: Error) => {
      throw new Error(`${error.message}; ${trouble}; in use by ${holders(disk.path).join(', ') || 'no process'}`);
    });
    // A mount namespace that was made meanwhile has a copy of this mount: as long as it lives, mounting again would give
    // us the file system that was cut, and not what is on the disk. `.ci/run` therefore gives these tests a namespace of
    // their own.
    if (kind === 'tmpfs') return;
    await until('the loop device to be let go', () => isFree(disk.image), 120_000).catch((error: Error) => {
      throw new Error(`${error.message}; also mounted for ${copiesOf(disk.path).join(', ') || 'no process'}`);
    });
  };
  return {
    path: disk.path,
    cut: () => must(PYTHON, CUT, disk.path),
    async remount() {
      await unmount();
      disk.mount();
      isMounted = true;
    },
    async remove() {
      await unmount();
      disk.forget();
    },
  };
}
