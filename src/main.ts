import { isatty } from 'node:tty';
import { setFlagsFromString } from 'node:v8';
import type { Io } from './cli/command.ts';
import { runCommandLine } from './cli/command-line.ts';
import { commands } from './cli/commands.ts';

// The heap of this thread has the size that --max-semi-space-size says (docs/decisions/0033-memory-and-writing.md).
// Threads set their own size, which the flag would override.
setFlagsFromString('--max-semi-space-size=0');

const io: Io = {
  env: process.env,
  pid: process.pid,
  terminals: { in: isatty(0), out: isatty(1), err: isatty(2) },
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
  onSignal(listener) {
    let stopping = false;
    const stop = () => {
      // A second signal stops at once; the spool makes it safe.
      if (stopping) process.exit(1);
      stopping = true;
      listener('stop');
    };
    process.on('SIGTERM', stop);
    process.on('SIGINT', stop);
    process.on('SIGHUP', () => listener('hangup'));
  },
};

// `postern queue list | head` closes our output early, which is normal.
process.stdout.on('error', () => process.exit(0));
// Writes to a closed terminal fail; the shutdown continues.
process.stderr.on('error', () => {});

process.exitCode = await runCommandLine(commands, process.argv.slice(2), io);
// The last lines of the log are written at the end of a turn of the event loop.
await new Promise((turned) => {
  setImmediate(turned);
});
if (process.argv[2] === 'serve') process.exit();
