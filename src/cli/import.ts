import { setTimeout } from 'node:timers/promises';
import { errorText } from '../base/errors.ts';
import { type Command, EXIT, type Invocation, type Io, ownServer, readSecret, toTable, UsageError } from './command.ts';
import { type ApiClient, CallRefused, createApiClient, Unreachable } from './import/client.ts';
import { IMPORTED_KINDS, type Item, type Kind } from './import/kinds.ts';

const THEIRS = 'https://mandrillapp.com/api/1.0';
/** Concurrent calls to the target. */
const AT_ONCE = 4;
/** Progress is reported after this many items of a kind. */
const REPORT_EVERY = 500;

export const importMandrill: Command = {
  options: {
    from: { value: 'URL', help: `the API to import from (default: ${THEIRS})` },
    'from-key-file': { value: 'FILE', help: 'a file with its key (default: $MANDRILL_API_KEY)' },
    to: { value: 'URL', help: 'the API of this Postern (default: http.listen in the settings)' },
    'key-file': { value: 'FILE', help: 'a file with a key of the target account (postern key create)' },
    only: {
      multiple: true,
      value: 'KIND',
      help: `only ${IMPORTED_KINDS.map(({ name }) => name.replace(' ', '-')).join(', ')}; may be repeated`,
    },
    'dry-run': { help: 'only show what would be imported' },
  },
  notes:
    'The source account is not changed. You can run the import again: it continues where it stopped. Keys are read ' +
    'from files, because other users of the machine can see command lines.',
  async run(call, io) {
    const kinds = chooseKinds(call);
    const { from, to } = clients(call, io);
    const results: Result[] = [];
    let connected = false;
    try {
      await Promise.all([greet(from, 'source account'), greet(to, 'target account')]);
      connected = true;
      for (const kind of kinds) results.push(await importAll(kind, from, to, call.flag('dry-run'), io));
    } catch (error) {
      if (!(error instanceof Unreachable || error instanceof CallRefused)) throw error;
      io.err(
        'postern import mandrill: ' +
          `${error.message}\n${connected ? 'Everything imported so far is kept; run it again to continue.\n' : ''}`,
      );
      return EXIT.unavailable;
    }
    call.print(results, () => report(results, call.flag('dry-run')));
    return results.some(({ failed }) => failed.length > 0) ? EXIT.failed : EXIT.ok;
  },
};

function chooseKinds(call: Invocation): readonly Kind[] {
  const names = call.texts('only').map((name) => name.replaceAll('-', ' '));
  const unknown = names.find((name) => !IMPORTED_KINDS.some((kind) => kind.name === name));
  if (unknown !== undefined) throw new UsageError(`unknown kind "${unknown}"`);
  return names.length === 0 ? IMPORTED_KINDS : IMPORTED_KINDS.filter(({ name }) => names.includes(name));
}

function clients(call: Invocation, io: Io): { readonly from: ApiClient; readonly to: ApiClient } {
  const file = (option: string) => {
    const path = call.text(option);
    return path === undefined ? undefined : readSecret(path);
  };
  const theirs = file('from-key-file') ?? io.env.MANDRILL_API_KEY;
  if (!theirs)
    throw new UsageError('missing key of the account to read from: --from-key-file FILE, or MANDRILL_API_KEY');
  const ours = file('key-file');
  if (!ours) throw new UsageError('missing key of the account to import into: --key-file FILE');
  // Not the daemon's clock: its timers do not keep the process alive.
  const waiter = { wait: (ms: number) => setTimeout(ms) };
  return {
    from: createApiClient(call.text('from') ?? THEIRS, theirs, waiter),
    to: createApiClient(call.text('to') ?? `${ownServer(call)}/api/1.0`, ours, waiter),
  };
}

/** Fails on a wrong key or URL before anything is imported. */
async function greet(api: ApiClient, side: string): Promise<void> {
  await api.greet().catch((error: unknown) => {
    throw new Unreachable(`${side}: ${errorText(error)}`);
  });
}

type Result = Awaited<ReturnType<typeof importAll>>;

async function importAll(kind: Kind, from: ApiClient, to: ApiClient, dryRun: boolean, io: Io) {
  const notes = new Set<string>();
  const say = (note: string) => void notes.add(note);
  const failed: { name: string; reason: string }[] = [];
  const items = await kind.items(from, to, say);
  const missing = items.filter(({ there }) => !there);
  io.err(`${kind.name}: ${items.length} found, ${items.length - missing.length} already exist\n`);
  let imported = 0;
  const bring = async (item: Item) => {
    try {
      if (!dryRun) await item.bring();
      imported++;
      if (item.note !== undefined) say(`for each: ${item.note}`);
      if (imported % REPORT_EVERY === 0) io.err(`${kind.name}: ${imported} of ${missing.length}\n`);
    } catch (error) {
      if (error instanceof Unreachable || (error instanceof CallRefused && error.error === 'Invalid_Key')) throw error;
      failed.push({ name: item.name, reason: errorText(error) });
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
    toTable(['', 'found', 'existing', dryRun ? 'would be imported' : 'imported', 'failed'], rows) +
    (failures.length === 0 ? '' : `\nNot imported:\n${toTable(['', 'item', 'reason'], failures)}`) +
    (notes.length === 0 ? '' : `\nNotes:\n${notes.join('')}`)
  );
}
