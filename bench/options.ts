import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';

/** An option of a command. `help` is what --help says of it; a `number` must be one, above 0. */
type Option = ParseArgsOptionsConfig[string] & {
  readonly help: string;
  readonly placeholder?: string;
  readonly number?: true;
};
type Declared = Readonly<Record<string, Option>>;
type Values<T extends Declared> = ReturnType<typeof parseArgs<{ options: T }>>['values'];

/**
 * The options of a command as they were given. `--help` prints what there is and ends with 0; what is not understood is
 * named in one line, and ends with 2.
 */
export function readOptions<const T extends Declared>(command: string, purpose: string, options: T): Values<T> {
  if (process.argv.includes('--help')) {
    console.log(toHelp(command, purpose, options));
    process.exit(0);
  }
  try {
    const { values } = parseArgs({ options, allowPositionals: false });
    for (const [name, value] of Object.entries<unknown>(values))
      if (options[name]?.number && !(Number(value) > 0)) refuse(command, `--${name} needs a number above 0`);
    return values;
  } catch (error) {
    return refuse(command, error instanceof Error ? error.message.split('. ', 1).join() : String(error));
  }
}

/** An option that is a number, with what it is unless given. */
export const usually = (usual: number, help: string) =>
  ({ type: 'string', default: String(usual), number: true, placeholder: 'N', help: `${help}; ${usual}` }) as const;

/** Ends the command with 2, and one line. */
export function refuse(command: string, why: string): never {
  console.error(`${command}: ${why} (--help lists the options)`);
  process.exit(2);
}

function toHelp(command: string, purpose: string, options: Declared): string {
  const rows = Object.entries(options).map(([name, { type, placeholder = 'VALUE', help }]) => ({
    left: `--${name}${type === 'boolean' ? '' : ` ${placeholder}`}`,
    help,
  }));
  const width = Math.max(...rows.map(({ left }) => left.length)) + 2;
  return `${purpose}\n\nUsage: ${command} [options]\n\n${rows.map(({ left, help }) => `  ${left.padEnd(width)}${help}`).join('\n')}\n  ${'--help'.padEnd(width)}this text`;
}
