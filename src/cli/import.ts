import { readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { type Command, EXIT, type Invocation, type Io, toTable, UsageError } from './command.ts';
import { type ApiClient, CallRefused, createApiClient, Unreachable } from './import/client.ts';
import { type Item, KINDS, type Kind } from './import/kinds.ts';

const THEIRS = 'https://mandrillapp.com/api/1.0';
/** Calls at one time to the target. */
const AT_ONCE = 4;
/** After this many things of one kind a line says how far it is. */
const SAY_EVERY = 500;

interface Result {
  readonly kind: string;
  readonly found: number;
  readonly there: number;
  readonly imported: number;
  readonly failed: readonly { readonly name: string; readonly reason: string }[];
  readonly notes: readonly string[];
}

export const importMandrill: Command = {
  name: 'import mandrill',
  summary:
    'Brings an account over: templates, lists, subaccounts, domains, routes and webhooks. What is there already stays as it is.',
  options: {
    from: { type: 'string', value: 'URL', help: `the API to read (without: ${THEIRS})` },
    'from-key-file': { type: 'string', value: 'FILE', help: 'its key (without: the variable MANDRILL_API_KEY)' },
    to: { type: 'string', value: 'URL', help: 'the API of this Postern (without: http.listen of the settings)' },
    'key-file': {
      type: 'string',
      value: 'FILE',
      help: 'a key of the account that it goes to (postern key create makes one)',
    },
    only: {
      type: 'string',
      multiple: true,
      value: 'KIND',
      help: `only ${KINDS.map(({ name }) => name.replace(' ', '-')).join(', ')}; may stand several times`,
    },
    'dry-run': { type: 'boolean', help: 'only say what would be brought over' },
  },
  notes:
    'Nothing is changed on the other side. Run it as often as you like: it goes on where it stopped. Keys are read from files,\nbecause a command line can be seen by everybody on the machine.',
  async run(call, io) {
    const kinds = chosen(call);
    const { from, to } = clients(call, io);
    const results: Result[] = [];
    let begun = false;
    try {
      await Promise.all([greet(from, 'the account that is read'), greet(to, 'the account that it goes to')]);
      begun = true;
      for (const kind of kinds) results.push(await bringAll(kind, from, to, call.flag('dry-run'), io));
    } catch (error) {
      if (!(error instanceof Unreachable || error instanceof CallRefused)) throw error;
      io.err(
        `postern import mandrill: ${error.message}\n${!begun ? '' : 'What was brought over until now stays; run it again to go on.\n'}`,
      );
      return EXIT.unavailable;
    }
    call.print(results, () => report(results, call.flag('dry-run')));
    return results.some(({ failed }) => failed.length > 0) ? EXIT.failed : EXIT.ok;
  },
};

function chosen(call: Invocation): readonly Kind[] {
  const names = call.texts('only').map((name) => name.replaceAll('-', ' '));
  const unknown = names.find((name) => !KINDS.some((kind) => kind.name === name));
  if (unknown !== undefined) throw new UsageError(`there is no kind "${unknown}"`);
  return names.length === 0 ? KINDS : KINDS.filter(({ name }) => names.includes(name));
}

function clients(call: Invocation, io: Io): { readonly from: ApiClient; readonly to: ApiClient } {
  const file = (option: string) => {
    const path = call.text(option);
    return path === undefined ? undefined : readKey(path);
  };
  const theirs = file('from-key-file') ?? io.env.MANDRILL_API_KEY;
  if (!theirs)
    throw new UsageError('missing key of the account to read from: --from-key-file FILE, or MANDRILL_API_KEY');
  const ours = file('key-file');
  if (!ours) throw new UsageError('missing key of the account to import into: --key-file FILE');
  const { host, port } = call.settings().settings.http.listen;
  // Not the clock of the daemon, whose timers keep no process alive: while this waits there may be nothing else.
  const waiter = { wait: (ms: number) => setTimeout(ms) };
  return {
    from: createApiClient(call.text('from') ?? THEIRS, theirs, waiter),
    to: createApiClient(
      call.text('to') ?? `http://${host.includes(':') ? `[${host}]` : host}:${port}/api/1.0`,
      ours,
      waiter,
    ),
  };
}

function readKey(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

/** A wrong key or address is told before anything is done. */
async function greet(api: ApiClient, side: string): Promise<void> {
  await api.greet().catch((error: unknown) => {
    throw new Unreachable(`${side}: ${error instanceof Error ? error.message : String(error)}`);
  });
}

async function bringAll(kind: Kind, from: ApiClient, to: ApiClient, dryRun: boolean, io: Io): Promise<Result> {
  const notes = new Set<string>();
  const say = (note: string) => void notes.add(note);
  const failed: { name: string; reason: string }[] = [];
  const items = await kind.items(from, to, say);
  const missing = items.filter(({ there }) => !there);
  io.err(`${kind.name}: ${items.length} found, ${items.length - missing.length} there already\n`);
  let imported = 0;
  const bring = async (item: Item) => {
    try {
      if (!dryRun) await item.bring();
      imported++;
      if (item.note !== undefined) say(`for each: ${item.note}`);
      if (imported % SAY_EVERY === 0) io.err(`${kind.name}: ${imported} of ${missing.length}\n`);
    } catch (error) {
      if (error instanceof Unreachable || (error instanceof CallRefused && error.error === 'Invalid_Key')) throw error;
      failed.push({ name: item.name, reason: error instanceof Error ? error.message : String(error) });
    }
  };
  for (let at = 0; at < missing.length; at += AT_ONCE) await Promise.all(missing.slice(at, at + AT_ONCE).map(bring));
  return {
    kind: kind.name,
    found: items.length,
    there: items.length - missing.length,
    imported,
    failed,
    notes: [...notes],
  };
}

function report(results: readonly Result[], dryRun: boolean): string {
  const rows = results.map(({ kind, found, there, imported, failed }) => [kind, found, there, imported, failed.length]);
  const failures = results.flatMap(({ kind, failed }) => failed.map(({ name, reason }) => [kind, name, reason]));
  const notes = results.flatMap(({ kind, notes }) => notes.map((note) => `  ${kind}: ${note}\n`));
  return (
    toTable(['', 'found', 'there already', dryRun ? 'would be imported' : 'imported', 'failed'], rows) +
    (failures.length === 0 ? '' : `\nNot imported:\n${toTable(['', 'what', 'why'], failures)}`) +
    (notes.length === 0 ? '' : `\nStill to do, or to know:\n${notes.join('')}`)
  );
}
