import { execFile, spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { promisify } from 'node:util';

export const hasGo = (): boolean => spawnSync('go', ['version']).status === 0;

// All programs are built alike, so that Go compiles its library once, and not for speed: compiling takes the longest.
const AS_ALL = ['-p', '2', '-trimpath', '-buildvcs=false', '-gcflags=all=-N -l', '-ldflags=-w'];

/**
 * Builds a program, from a file or from the module of a folder, unless it is there already. It takes seconds, in which
 * the daemon of the test must not stand still. Throws if Go's proxy for modules is unreachable.
 */
export async function buildGo(source: string, binary: string): Promise<void> {
  const alone = source.endsWith('.go');
  await promisify(execFile)('go', ['build', ...AS_ALL, '-o', binary, alone ? source : '.'], {
    cwd: alone ? dirname(source) : source,
    env: { ...process.env, ...(alone && { GO111MODULE: 'off' }) },
  });
}
