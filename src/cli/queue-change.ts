import {
  CHANGE_QUEUE,
  changeOnHosts,
  FIND_JOBS,
  type HostShare,
  type QueueChange,
  type QueueChangeRequest,
} from '../api/hosts/host-queue.ts';
import type { OtherHost, RpcResult } from '../api/hosts/host-rpc.ts';
import { systemClock } from '../base/clock.ts';
import { printable } from '../base/log.ts';
import { inWords } from '../base/tables.ts';
import { journalSettings } from '../composition/slices.ts';
import { hasOwnStore } from '../config.ts';
import { COMMAND_LINE, HOST } from '../journal/actions.ts';
import { createBulkChanges } from '../queue/bulk-changes.ts';
import { kindsOf, type Selection } from '../queue/delivery.ts';
import {
  ASKED_STATES,
  BULK_ACTIONS,
  type BulkAction,
  type DeliveryState,
  ENDED_STATES,
  STATES,
} from '../queue/states.ts';
import type { Settings } from '../settings.ts';
import { noteActions, toWords } from './actions.ts';
import { commandPauses } from './adoption.ts';
import { type Command, EXIT, type Invocation, type Io, UsageError } from './command.ts';
import { withSpool } from './open.ts';
import { hostOption, isExpected, sayUnknown, withHosts } from './other-hosts.ts';
import { selecting, toSelection } from './queue.ts';
import { isUrl, tryAt } from './trial.ts';

// Commands that change many deliveries, on all hosts of the store.

/** Throws `UsageError` if nothing is selected; changing all deliveries requires `--all`. */
function requireChoice(call: Invocation, selection: Selection): void {
  const { states: _, ...rest } = selection;
  if (!call.flag('all') && Object.values(rest).every((value) => value === undefined)) {
    throw new UsageError(
      'nothing selected: pass ids, --route, --kind, --webhook, --url, --recipient, --account, --from, --to, or --all',
    );
  }
}

/** Interval of progress messages. */
const PROGRESS_EVERY_MS = 1000;

const ALL_HOSTS =
  'With several hosts, deliveries on all hosts are changed, or those of --host. Hosts that do not answer are named ' +
  'and left unchanged, and the exit code is 1, unless they were stopped or have no http.peer_url. On this host the ' +
  'command works even if the daemon is stopped.';

interface Change {
  readonly notes?: string;
  readonly options?: NonNullable<Command['options']>;
  readonly action: BulkAction;
  /** Printed before the count. */
  readonly done: string;
  /** The same for a dry run. */
  readonly wouldDo: string;
  /** Narrows the selection of the command line to the deliveries that the command changes. */
  narrow?(selection: Selection, call: Invocation): readonly Selection[];
}

/**
 * Creates a command that changes the selected deliveries on all hosts of the store. It exits 1 if ids were given and
 * none could be changed, or if a host that was expected to answer did not.
 */
function changing({ notes, options, action, done, wouldDo, narrow }: Change): Command {
  return {
    notes: notes === undefined ? ALL_HOSTS : `${notes}\n\n${ALL_HOSTS}`,
    args: '[ID…]',
    options: {
      ...selecting,
      ...options,
      all: { help: 'all deliveries' },
      host: hostOption,
      'dry-run': { help: 'only count the deliveries that would be changed' },
    },
    async run(call, io) {
      const chosen = toSelection(call);
      requireChoice(call, chosen);
      const dryRun = call.flag('dry-run');
      const { settings } = call.settings();
      const order: QueueChangeRequest = {
        action,
        selections: narrow?.(chosen, call) ?? [chosen],
        dry_run: dryRun,
        at_most: null,
        by: COMMAND_LINE,
        words: toWords(chosen),
      };
      return withHosts(call, async ({ own, isHere, others, fault }) => {
        const here = {
          name: own,
          change: (given: QueueChangeRequest) => changeQueueHere(given, call.name, settings, io),
        };
        const there = others.map(({ row, ask }) => ({
          name: row.name,
          change: (given: QueueChangeRequest) => ask(CHANGE_QUEUE, given),
        }));
        const { hosts } = await changeOnHosts([...(isHere ? [here] : []), ...there], order);
        const shares = await Promise.all(
          hosts.map((share, n) =>
            untilEnded(share, others[isHere ? n - 1 : n], createProgress(io, call.name, share.count)),
          ),
        );
        if (!dryRun) noteOthers(shares.slice(isHere ? 1 : 0), order, settings, io);
        const count = shares.reduce((sum, share) => sum + share.count, 0);
        const records = shares.map(({ name, count, error }) => ({ name, count, error }));
        call.print([{ count, dry_run: dryRun, ...(hasOwnStore(settings) ? {} : { hosts: records }) }], () => {
          // Not if a host was not asked: it may have some.
          if (count === 0 && fault === undefined && shares.every(({ error }) => error === null)) {
            const { states, ended } = BULK_ACTIONS[action];
            return `No matching deliveries. Only ${inWords(states)} deliveries can be ${ended}.\n`;
          }
          const parts = shares.filter((one) => one.count > 0).map((one) => `${one.count} on ${printable(one.name)}`);
          const where = shares.length > 1 && count > 0 ? `: ${parts.join(', ')}` : '';
          return `${dryRun ? wouldDo : done} ${count} ${count === 1 ? 'delivery' : 'deliveries'}${where}.\n`;
        });
        for (const { error } of shares) if (error !== null) io.err(`${printable(error)}.\n`);
        if (fault !== undefined) return sayUnknown(io, fault);
        const isMissed = shares.some(({ error }, n) => error !== null && isExpected(others[isHere ? n - 1 : n], call));
        return isMissed || (count === 0 && call.words.length > 0) ? EXIT.failed : EXIT.ok;
      });
    },
  };
}

/** Changes the queue of this host, whose daemon need not run. */
function changeQueueHere(
  { action, selections, dry_run: dryRun, words }: QueueChangeRequest,
  name: string,
  settings: Settings,
  io: Io,
): Promise<RpcResult<QueueChange>> {
  return withSpool(settings, async (spool) => {
    const bulk = createBulkChanges({ spool, clock: systemClock });
    const { matched } = await bulk.count(action, { selections });
    const noted = { what: BULK_ACTIONS[action].ended, detail: words };
    const changed = dryRun
      ? 0
      : await bulk.change(
          action,
          { selections },
          {
            progress: createProgress(io, name, matched),
            ended: (byAccount) => noteActions(io, journalSettings(settings).file, byAccount, noted),
          },
        );
    return { kind: 'answered', answer: { matched, by_state: [], changed, job: null } };
  });
}

/** The interval at which a host is asked for the progress of its job. Milliseconds. */
const JOB_EVERY_MS = 500;

/** Waits for the job that another host has started, if any. */
async function untilEnded(share: HostShare, host: OtherHost | undefined, progress: (done: number) => void) {
  const { name, job, count } = share;
  if (job === null || !host) return share;
  const { wait } = commandPauses();
  for (;;) {
    const asked = await host.ask(FIND_JOBS, { ids: [job] });
    const found = asked.kind === 'answered' ? asked.answer[0] : undefined;
    if (!found)
      return {
        ...share,
        error: `the job on ${name} for ${count} deliveries can no longer be followed; check the queue there`,
      };
    if (found.state !== 'running')
      return { ...share, count: found.done, error: found.error === null ? null : `${name}: ${found.error}` };
    progress(found.done);
    await wait(JOB_EVERY_MS);
  }
}

/** Records on this host the changes of other hosts, which have recorded them for the accounts. */
function noteOthers(
  shares: readonly HostShare[],
  { action, words }: QueueChangeRequest,
  settings: Settings,
  io: Io,
): void {
  const { file } = journalSettings(settings);
  const what = BULK_ACTIONS[action].ended;
  for (const { name, count } of shares)
    if (count > 0) noteActions(io, file, new Map([[HOST, count]]), { what, detail: `on ${name}: ${words}` });
}

/** Reports progress on standard error; prints nothing if the change completes in one step. */
function createProgress(io: Io, name: string, total: number): (done: number) => void {
  let reportedAt = -Infinity;
  return (done) => {
    const now = systemClock.monotonic();
    if (done >= total || now - reportedAt < PROGRESS_EVERY_MS) return;
    reportedAt = now;
    io.err(`${name}: ${done} of ${total}\n`);
  };
}

export const queueRetry = changing({
  action: 'retry',
  done: 'Retrying',
  wouldDo: 'Would retry',
});

export const queueDrop = changing({
  action: 'drop',
  done: 'Dropped',
  wouldDo: 'Would drop',
});

export const queueFlush: Command = {
  notes: ALL_HOSTS,
  options: {
    host: hostOption,
    'dry-run': { help: 'only count the deliveries that would be changed' },
  },
  run: (call, io) => queueRetry.run({ ...call, words: [], flag: (name) => name === 'all' || call.flag(name) }, io),
};

const requeue = changing({
  options: {
    ...Object.fromEntries(ASKED_STATES.map((state) => [state, { help: STATES[state].replayOption }] as const)),
    to: {
      value: 'TIME|URL',
      help: 'accepted before this time; or, with one id, a URL: post it there once and change nothing',
    },
  },
  notes:
    'Outbound mail is replayed only by id or with --kind outbound, and delivered mail of kind return only by ' +
    'id or with --kind return.\n\nTo replay a day for a consumer that lost it:\n  postern replay --delivered ' +
    '--url https://app.example.com/hook --from 2026-01-05 --to 2026-01-06\n\nTo try a message with a receiver ' +
    'on your machine (webhooks.allow_private must allow its address):\n  postern replay ID --to ' +
    'http://127.0.0.1:3000/mail',
  action: 'replay',
  done: 'Requeued',
  wouldDo: 'Would requeue',
  narrow(selection, call) {
    const isMeant = (state: DeliveryState) =>
      STATES[state].replayOption === null || call.flag(state) || call.words.length > 0;
    const states = ENDED_STATES.filter(isMeant);
    if (selection.ids || selection.kinds) return [{ ...selection, states }];
    // Dead outbound mail has bounced or was cancelled, so it is replayed only on request. The same applies to delivered
    // mail of the operator, such as a report to a sender.
    return [
      { ...selection, kinds: kindsOf('route', 'webhook'), states },
      { ...selection, kinds: kindsOf('operator'), states: states.filter((state) => state !== 'delivered') },
    ];
  },
});

export const replay: Command = {
  ...requeue,
  run(call, io) {
    const to = call.text('to');
    return isUrl(to) ? tryAt(call, to) : requeue.run(call, io);
  },
};
