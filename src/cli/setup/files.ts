import {
  chmodSync,
  chownSync,
  closeSync,
  fsyncSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { isMap, isScalar, parseDocument, stringify, type YAMLMap } from 'yaml';
import { hasCode } from '../../base/errors.ts';
import { isLoopback } from '../../base/networks.ts';

// Edits of the operator's files: they change as little text as possible, and replace the file atomically.

/** A setting and its new value: `smtp.postmaster`. */
export interface SettingChange {
  readonly path: string;
  readonly value: string | boolean;
}

/** The value of a setting in the text of a settings file; undefined if it is not set there. */
export function settingAt(text: string, path: string): unknown {
  return parseDocument(text).getIn(path.split('.'));
}

/**
 * The text of a settings file with other values. Keeps comments and layout: `Document` keeps comments too, but
 * moves those between sections and rewrites lists, so it only checks the result, and writes files with an unknown
 * layout.
 */
export function withSettings(text: string, changes: readonly SettingChange[]): string {
  const read = parseDocument(text);
  const wanted = read.contents === null ? parseDocument('{}') : read;
  for (const { path, value } of changes) {
    const [section = '', name] = path.split('.');
    // A section without settings is null.
    if (name !== undefined && !wanted.get(section)) wanted.set(section, wanted.createNode({}));
    wanted.setIn(path.split('.'), value);
  }
  const changed = changes.reduce(withSetting, text);
  const result = parseDocument(changed);
  const isRight = result.errors.length === 0 && isDeepStrictEqual(result.toJS(), wanted.toJS());
  return isRight ? changed : wanted.toString({ lineWidth: 0 });
}

function withSetting(text: string, { path, value }: SettingChange): string {
  const { contents } = parseDocument(text);
  const shown = stringify(value).trimEnd();
  const [section = '', name] = path.split('.');
  const line = name === undefined ? `${section}: ${shown}` : `${name}: ${shown}`;
  if (!isMap(contents)) return atEnd(text, name === undefined ? line : `${section}:\n  ${line}`);
  const node = contents.getIn(path.split('.'), true);
  if (isScalar(node) && node.range) {
    const [from, to] = node.range;
    return `${text.slice(0, from)}${from === to ? ' ' : ''}${shown}${text.slice(to)}`;
  }
  const pair =
    name === undefined ? undefined : contents.items.find(({ key }) => isScalar(key) && key.value === section);
  if (!pair || !isScalar(pair.key)) return atEnd(text, name === undefined ? line : `${section}:\n  ${line}`);
  if (isMap(pair.value) && pair.value.flow) return inFlow(text, pair.value, line);
  const first = isMap(pair.value) ? pair.value.items[0]?.key : undefined;
  const indent = isScalar(first) && first.range ? columnAt(text, first.range[0]) : 2;
  const end = text.indexOf('\n', pair.key.range?.[1]);
  const at = end === -1 ? text.length : end;
  return `${text.slice(0, at)}\n${' '.repeat(indent)}${line}${text.slice(at)}`;
}

const atEnd = (text: string, lines: string) => `${text.trimEnd()}${text.trim() === '' ? '' : '\n\n'}${lines}\n`;

function inFlow(text: string, { range, items }: YAMLMap, line: string): string {
  const at = (range?.[0] ?? 0) + 1;
  return `${text.slice(0, at)}${line}${items.length > 0 ? ', ' : ''}${text.slice(at)}`;
}

const columnAt = (text: string, at: number) => at - (text.lastIndexOf('\n', at - 1) + 1);

/** The name of a machine with its domain, if a hosts file has it: `127.0.1.1 mx.example.com mx`. */
export function fullName(hosts: string, name: string): string | undefined {
  const lines = hosts.split('\n').map((line) => line.replace(/#.*/, '').trim().split(/\s+/).slice(1));
  return lines.find((names) => names.includes(name))?.find((one) => one.includes('.') && one !== 'localhost');
}

/**
 * The text of a hosts file in which a name has these addresses, where it had loopback: Debian's installer writes
 * `127.0.1.1 mx.example.com mx`. Undefined if there is nothing to change.
 */
export function withoutLoopback(hosts: string, name: string, addresses: readonly string[]): string | undefined {
  const [main, ...others] = addresses;
  if (main === undefined) return undefined;
  const lines: string[] = [];
  let isListed = false;
  for (const line of hosts.split('\n')) {
    const [address = '', ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (!isLoopback(address) || !names.some((one) => one.toLowerCase() === name)) lines.push(line);
    else if (names.includes('localhost'))
      // Only the name leaves that line.
      lines.push([address, ...names.filter((one) => one.toLowerCase() !== name)].join(' '));
    else if (!isListed) {
      isListed = true;
      lines.push(line.replace(address, main), ...others.map((other) => `${other} ${names.join(' ')}`));
    }
  }
  const changed = lines.join('\n');
  return changed === hosts ? undefined : changed;
}

/** The text of a file; undefined if there is none. */
export function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** The time of the last change of a file's content. */
export const changeTime = (path: string): number => statSync(path).mtimeMs;

/**
 * Writes a file in one step, so that no reader and no crash sees half of it. Owner and mode stay; those of a new file
 * are `mode` and the owner of its folder, whose group the daemon has.
 */
export function writeWhole(path: string, text: string, mode: number): void {
  const isNew = textOf(path) === undefined;
  const real = isNew ? path : realpathSync(path);
  const like = statSync(isNew ? dirname(path) : real);
  const next = `${real}.new`;
  try {
    writeFileSync(next, text, { mode: 0o600 });
    chownSync(next, like.uid, like.gid);
    chmodSync(next, isNew ? mode : like.mode & 0o7777);
    sync(next);
    renameSync(next, real);
  } catch (error) {
    rmSync(next, { force: true });
    throw error;
  }
  sync(dirname(real));
}

function sync(path: string): void {
  const descriptor = openSync(path, 'r');
  fsyncSync(descriptor);
  closeSync(descriptor);
}
