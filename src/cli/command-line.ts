import { VERSION } from '../base/version.ts';
import { EXIT, type Io, type ListedCommand } from './command.ts';

/** Runs the command in `argv` (without node and script) and returns its exit code. Never throws. */
export async function runCommandLine(
  commands: readonly ListedCommand[],
  argv: readonly string[],
  io: Io,
): Promise<number> {
  if (argv[0] === '--version' || argv[0] === '-V') {
    io.out(`postern ${VERSION}\n`);
    return EXIT.ok;
  }
  const command = find(commands, argv);
  if (!command) return overview(commands, argv, io);
  // It loads the settings and their schemas, which take longer than all of the above.
  const { runCommand } = await import('./run.ts');
  return runCommand(command, argv.slice(command.name.split(' ').length), io);
}

function find(commands: readonly ListedCommand[], argv: readonly string[]): ListedCommand | undefined {
  const typed = argv.slice(0, 2).join(' ');
  return commands.find(({ name }) => name === typed) ?? commands.find(({ name }) => name === argv[0]);
}

function overview(commands: readonly ListedCommand[], argv: readonly string[], io: Io): number {
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
