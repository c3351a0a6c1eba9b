import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Refusal } from '../api/errors.ts';
import { errorText } from '../base/errors.ts';
import { printable } from '../base/log.ts';
import { withPort } from '../base/networks.ts';
import { VERSION } from '../base/version.ts';
import { ConfigError, type LoadedSettings, loadSettings } from '../config.ts';
import { HostRefused } from '../store/rows/hosts.ts';

/** Exit codes of sysexits.h, so that scripts and systemd can tell the cases apart. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 64,
  unavailable: 69,
  fault: 70,
  tryLater: 75,
  denied: 77,
  config: 78,
} as const;

/** What each exit code means, for the help text and the manual. */
export const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  ok: 'success',
  failed: 'a check failed, nothing matched, or the request was rejected',
  usage: 'usage error',
  unavailable: 'a required resource is unavailable',
  fault: 'internal error',
  tryLater: 'the store is unavailable; try again later',
  denied: 'permission denied: run the command as root or as the user postern',
  config: 'invalid settings, or this host may not run on its store',
};

/** The process as a command sees it. */
export interface Io {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly pid: number;
  /** Which of the standard streams are terminals. */
  readonly terminals: { readonly in: boolean; readonly out: boolean; readonly err: boolean };
  out(text: string | Uint8Array): void;
  err(text: string): void;
  /** Calls back on SIGTERM and SIGINT (`stop`) and on SIGHUP (`hangup`). */
  onSignal(listener: (signal: 'stop' | 'hangup') => void): void;
}

/** An option of a command; help, manual and completions are generated from it. Without `value` it is a flag. */
export interface Option {
  readonly short?: string;
  readonly multiple?: boolean;
  /** The placeholder of its value in help texts: `--state STATE`. */
  readonly value?: string;
  /** All allowed values, when there are few. */
  readonly values?: readonly string[];
  readonly help: string;
}

/** How results are printed: as text, as one JSON array, or as one JSON object per line. */
type Format = 'text' | 'json' | 'jsonl';

/** A parsed command line: the arguments after the command's name, and its options. */
export interface Invocation {
  readonly words: readonly string[];
  flag(name: string): boolean;
  text(name: string): string | undefined;
  texts(name: string): readonly string[];
  /** An argument that must be there, with its name in the help text. */
  word(name: string, at?: number): string;
  /** The values of an option, each of which must be known. */
  known<T extends string>(name: string, values: readonly T[]): readonly T[];
  /** A positive whole number. */
  count(name: string, otherwise: number): number;
  readonly format: Format;
  /** Prints the results: `records` as JSON, or `text` for people. */
  print(records: readonly object[], text: () => string): void;
  /** Prints records as JSON, or as a table for people; without `cells`, of all their fields. */
  table<R extends object>(records: readonly R[], headings: readonly string[], cells?: (record: R) => Cells): void;
  /** Loads the settings from `--config`, POSTERN_CONFIG and the environment. */
  settings(): LoadedSettings;
}

export interface Command {
  /** As typed: `queue list`. */
  readonly name: string;
  readonly summary: string;
  /** The arguments, as the help text shows them. */
  readonly args?: string;
  readonly options?: Readonly<Record<string, Option>>;
  /** Added to the end of the help text: an example, for instance. */
  readonly notes?: string;
  /** Returns the exit code, if that is not `EXIT.ok`. */
  run(call: Invocation, io: Io): Promise<number> | Promise<void>;
}

/** A command was called wrongly: exit 64, with a hint. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The command may not access its files: exit 77. */
export class Denied extends Error {
  override readonly name = 'Denied';
}

/** Something that the command needs is not there: exit 69. */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';
}

/** Options that every command has. */
export const COMMON: Readonly<Record<string, Option>> = {
  config: { short: 'c', value: 'FILE', help: 'settings file (default: $POSTERN_CONFIG)' },
  json: { help: 'print the results as one JSON array' },
  jsonl: { help: 'print the results as JSON, one object per line' },
  help: { short: 'h', help: 'show this help' },
};

/** Runs the command in `argv` (without node and script) and returns its exit code. Never throws. */
export async function runCommandLine(commands: readonly Command[], argv: readonly string[], io: Io): Promise<number> {
  if (argv[0] === '--version' || argv[0] === '-V') {
    io.out(`postern ${VERSION}\n`);
    return EXIT.ok;
  }
  const command = find(commands, argv);
  if (!command) return overview(commands, argv, io);
  try {
    const call = invocation(command, argv.slice(command.name.split(' ').length), io);
    if (call === 'help') {
      io.out(helpText(command));
      return EXIT.ok;
    }
    return (await command.run(call, io)) ?? EXIT.ok;
  } catch (error) {
    return explain(error, command, io);
  }
}

function find(commands: readonly Command[], argv: readonly string[]): Command | undefined {
  const typed = argv.slice(0, 2).join(' ');
  return commands.find(({ name }) => name === typed) ?? commands.find(({ name }) => name === argv[0]);
}

function overview(commands: readonly Command[], argv: readonly string[], io: Io): number {
  const asked = argv.length === 0 || argv[0] === 'help' || argv[0] === '--help' || argv[0] === '-h';
  const group = commands.filter(({ name }) => name.startsWith(`${argv[0]} `));
  const shown = group.length > 0 ? group : commands;
  const width = Math.max(...shown.map(({ name }) => name.length));
  const lines = shown.map(({ name, summary }) => `  postern ${name.padEnd(width)}  ${summary}`);
  const text =
    `Postern receives mail by SMTP and posts it to your webhooks.\n\n${lines.join('\n')}\n\n` +
    'Run "postern COMMAND --help" for details and "postern --version" for the version. All settings: ' +
    'config/default.yaml.\n';
  if (asked) io.out(text);
  else io.err(group.length > 0 ? text : `postern: unknown command "${argv.slice(0, 2).join(' ')}"\n\n${text}`);
  return asked ? EXIT.ok : EXIT.usage;
}

function invocation(command: Command, argv: readonly string[], io: Io): Invocation | 'help' {
  const options = { ...command.options, ...COMMON };
  const parsed = parse(options, argv);
  const values: Readonly<Record<string, unknown>> = parsed.values;
  if (values.help === true) return 'help';
  const unexpected = parsed.positionals[maxWords(command)];
  if (unexpected !== undefined) throw new UsageError(`unexpected argument "${unexpected}"`);
  if (values.json === true && values.jsonl === true) throw new UsageError('use either --json or --jsonl');
  const text = (name: string) => (typeof values[name] === 'string' ? values[name] : undefined);
  const texts = (name: string) => [values[name]].flat().filter((item) => typeof item === 'string');
  const format = values.json === true ? 'json' : values.jsonl === true ? 'jsonl' : 'text';
  function print(records: readonly object[], shown: () => string): void {
    if (format === 'text') io.out(shown());
    else if (format === 'json') io.out(JSON.stringify(records) + '\n');
    else for (const record of records) io.out(JSON.stringify(record) + '\n');
  }
  return {
    words: parsed.positionals,
    flag: (name) => values[name] === true,
    text,
    texts,
    word(name, at = 0) {
      const given = parsed.positionals[at];
      if (!given) throw new UsageError(`missing argument: ${name}`);
      return given;
    },
    known: (name, all) =>
      texts(name).map((given) => {
        const found = all.find((one) => one === given);
        if (found === undefined) throw new UsageError(`--${name} must be one of ${all.join(', ')}; not "${given}"`);
        return found;
      }),
    count(name, otherwise) {
      const number = Number(text(name) ?? otherwise);
      if (!Number.isInteger(number) || number < 1) throw new UsageError(`--${name} must be a positive whole number`);
      return number;
    },
    format,
    print,
    table: (records, headings, cells = Object.values) => print(records, () => toTable(headings, records.map(cells))),
    settings: () => loadSettings(text('config') ?? (io.env.POSTERN_CONFIG || undefined), io.env),
  };
}

/**
 * The largest number of arguments, read from `args`: two for `DOMAIN PATTERN`, one for `KEY | ID`, any for `[ID…]`.
 */
function maxWords({ args }: Command): number {
  if (!args) return 0;
  return args.includes('…') ? Infinity : Math.max(...args.split('|').map((form) => form.trim().split(' ').length));
}

function parse(options: Readonly<Record<string, Option>>, argv: readonly string[]) {
  const toType = ({ short, multiple = false, value }: Option) =>
    ({ type: value === undefined ? 'boolean' : 'string', multiple, ...(short && { short }) }) as const;
  const types = Object.fromEntries(Object.entries(options).map(([name, option]) => [name, toType(option)]));
  try {
    return parseArgs({ args: [...argv], options: types, allowPositionals: true, strict: true });
  } catch (error) {
    throw new UsageError(errorText(error).split('. ')[0]);
  }
}

function explain(error: unknown, command: Command, io: Io): number {
  if (error instanceof UsageError) {
    io.err(`postern ${command.name}: ${error.message}\nTry: postern ${command.name} --help\n`);
    return EXIT.usage;
  }
  if (error instanceof ConfigError) {
    io.err(`postern: invalid settings:\n${error.faults.map(({ path, text }) => `  ${path}: ${text}`).join('\n')}\n`);
    return EXIT.config;
  }
  io.err(`postern ${command.name}: ${errorText(error)}\n`);
  if (error instanceof Denied) return EXIT.denied;
  if (error instanceof HostRefused) return EXIT.config;
  if (error instanceof Unavailable) return EXIT.unavailable;
  if (error instanceof Refusal) return error.status === 503 ? EXIT.tryLater : EXIT.failed;
  return error instanceof Error && error.name === 'StoreAway' ? EXIT.tryLater : EXIT.fault;
}

function helpText(command: Command): string {
  const rows = Object.entries({ ...command.options, ...COMMON }).map(([name, option]) => {
    const short = option.short === undefined ? '    ' : `-${option.short}, `;
    return [`${short}--${name}${option.value === undefined ? '' : ` ${option.value}`}`, option.help] as const;
  });
  const width = Math.max(...rows.map(([left]) => left.length));
  const usage = `postern ${command.name}${command.args === undefined ? '' : ` ${command.args}`} [options]`;
  const notes = command.notes === undefined ? '' : `\n${command.notes}\n`;
  return (
    `${command.summary}\n\nUsage: ` +
    `${usage}\n\n${rows.map(([left, help]) => `  ${left.padEnd(width)}  ${help}`).join('\n')}\n${notes}`
  );
}

export type Cells = readonly (string | number | null)[];

/** The text of a file with a key or a URL, which other users could see on a command line. */
export function readSecret(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    throw new UsageError(errorText(error));
  }
}

/** The URL of the daemon of the settings. */
export function ownServer(call: Pick<Invocation, 'settings'>): string {
  const { host, port } = call.settings().settings.http.listen;
  return `http://${withPort(host, port)}`;
}

/** A table with aligned columns for a terminal. Control characters in cells are escaped. */
export function toTable(headings: readonly string[], rows: readonly Cells[]): string {
  const lines = [headings, ...rows.map((row) => row.map((cell) => (cell === null ? '-' : printable(String(cell)))))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return (
    lines
      .map((line) =>
        line
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd(),
      )
      .join('\n') + '\n'
  );
}

/** A record as lines, one for each field. */
export const toFacts = (record: object): string =>
  Object.entries(record)
    .map(([name, value]) => `${name.padEnd(12)} ${printable(String(value ?? '-'))}\n`)
    .join('');

/** Characters of a text in a table, such as a subject. */
const CELL = 40;

/** A text short enough for a table. */
export const toCell = (text: string | null): string | null =>
  text === null || text.length <= CELL ? text : `${text.slice(0, CELL - 1)}…`;

/** A duration in one unit: 45s, 12m, 3h, 5d. */
export function toSpan(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)}h`;
  return `${Math.round(seconds / 86_400)}d`;
}
