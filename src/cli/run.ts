import { parseArgs } from 'node:util';
import { Refusal } from '../api/errors.ts';
import { errorText } from '../base/errors.ts';
import { ConfigError, type LoadedSettings, loadSettings } from '../config.ts';
import { HostRefused } from '../store/rows/hosts.ts';
import {
  type Cells,
  COMMON,
  type Command,
  Denied,
  EXIT,
  type Invocation,
  type Io,
  type ListedCommand,
  type LoadedCommand,
  loadCommand,
  type Option,
  toTable,
  Unavailable,
  UsageError,
  wrapText,
} from './command.ts';

/** Loads a command and runs it with the arguments after its name. Returns its exit code; never throws. */
export async function runCommand(listed: ListedCommand, argv: readonly string[], io: Io): Promise<number> {
  try {
    const command = await loadCommand(listed);
    const call = invocation(command, argv, io);
    if (call === 'help') {
      io.out(helpText(command));
      return EXIT.ok;
    }
    return (await command.run(call, io)) ?? EXIT.ok;
  } catch (error) {
    return explain(error, listed.name, io);
  }
}

function invocation(command: LoadedCommand, argv: readonly string[], io: Io): Invocation | 'help' {
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
  const reload = () => loadSettings(text('config') ?? (io.env.POSTERN_CONFIG || undefined), io.env);
  let loaded: LoadedSettings | undefined;
  return {
    name: command.name,
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
    table: (records, { none, headings, cells = Object.values }) =>
      print(records, () =>
        none !== undefined && records.length === 0
          ? `${none}\n`
          : toTable(
              headings,
              records.map((record): Cells => cells(record)),
            ),
      ),
    settings() {
      loaded ??= reload();
      return loaded;
    },
    reload,
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

function explain(error: unknown, name: string, io: Io): number {
  if (error instanceof UsageError) {
    io.err(`postern ${name}: ${error.message}\nTry: postern ${name} --help\n`);
    return EXIT.usage;
  }
  if (error instanceof ConfigError) {
    io.err(`postern: invalid settings:\n${error.faults.map(({ path, text }) => `  ${path}: ${text}`).join('\n')}\n`);
    return EXIT.config;
  }
  io.err(`postern ${name}: ${faultText(error)}\n`);
  if (error instanceof Denied) return EXIT.denied;
  if (error instanceof HostRefused) return EXIT.config;
  if (error instanceof Unavailable) return EXIT.unavailable;
  if (error instanceof Refusal) return error.status === 503 ? EXIT.tryLater : EXIT.failed;
  return error instanceof Error && error.name === 'StoreAway' ? EXIT.tryLater : EXIT.fault;
}

/** Parameters that an operation refused, as people read them: `url: …` instead of JSON. */
function faultText(error: unknown): string {
  const [, faults] = (error instanceof Refusal && /^Validation error: (\{.*\})$/s.exec(error.message)) || [];
  if (faults === undefined) return errorText(error);
  const entries = Object.entries<unknown>(JSON.parse(faults));
  return entries.map(([parameter, fault]) => `${parameter}: ${String(fault)}`).join('; ');
}

function helpText(command: LoadedCommand): string {
  const rows = Object.entries({ ...command.options, ...COMMON }).map(([name, option]) => {
    const short = option.short === undefined ? '    ' : `-${option.short}, `;
    return [`${short}--${name}${option.value === undefined ? '' : ` ${option.value}`}`, option.help] as const;
  });
  const width = Math.max(...rows.map(([left]) => left.length));
  const usage = ['postern', command.name, command.args, '[options]'].filter(Boolean).join(' ');
  const options = rows.map(([left, help]) => `  ${left.padEnd(width)}  ${wrapText(help, width + 4)}\n`).join('');
  const notes = command.notes === undefined ? '' : `\n${toParagraphs(command.notes)}\n`;
  return `${wrapText(command.summary)}\n\nUsage: ${usage}\n\n${options}${notes}`;
}

/** Indented lines are commands to copy, and stay whole. */
const toParagraphs = (notes: string): string =>
  notes
    .split('\n')
    .map((line) => (line.startsWith(' ') ? line : wrapText(line)))
    .join('\n');
