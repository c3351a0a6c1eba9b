import { expect } from 'chai';
import { type ChildDaemon, spawnDaemon } from '../support/child.ts';
import { postern as command } from '../support/command.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { KILLS, loadThroughKills, MESSAGES } from '../support/faults/kill-load.ts';
import { type MailSink, type Sunk, startMailSink } from '../support/mail-sink.ts';
import { plain } from '../support/submission.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

/** Mails on their way at one time; as many may go out again after a kill. */
const CONCURRENCY = 10;

interface Seen {
  readonly postern: ChildDaemon;
  readonly acknowledged: ReadonlyMap<string, string>;
  /** By subject. */
  readonly arrived: ReadonlyMap<string, readonly Sunk[]>;
  readonly repeats: number;
}

/** Mail handed over through kills, until the queue is empty. */
async function handOver(sink: MailSink, kills: number, more: Readonly<Record<string, string>> = {}): Promise<Seen> {
  const dir = await tempDir();
  const env = {
    POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
    POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${sink.port}`,
    POSTERN_OUTBOUND__QUOTA: 'false',
    POSTERN_OUTBOUND__CONCURRENCY_TO_RELAY: String(CONCURRENCY),
    ...more,
  };
  const { postern, acknowledged } = await loadThroughKills({
    start: () => spawnDaemon(dir, env),
    hello: ['EHLO client.example.org', `AUTH PLAIN ${plain(KEY)}`],
    to: 'jo@to.test',
    kills,
    address({ submission: [address] }) {
      if (!address) throw new Error('no listener for submission');
      return address;
    },
  });
  await until(
    'an empty queue',
    async () => {
      const { code, out } = await command(['queue', 'list', '--kind', 'outbound', '--state', 'waiting', '--jsonl'], {
        POSTERN_DATA_DIR: dir,
      });
      return code === 0 && out === '';
    },
    120_000,
  );
  const arrived = Map.groupBy(sink.mails, subjectOf);
  return { postern, acknowledged, arrived, repeats: sink.mails.length - arrived.size };
}

const lostOf = ({ acknowledged, arrived }: Seen) => [...acknowledged.keys()].filter((subject) => !arrived.has(subject));

function show(what: string, seen: Seen): void {
  console.log(
    `      ${what}: acknowledged ${seen.acknowledged.size}, sent ${seen.arrived.size}, lost ${lostOf(seen).length}, repeats ${seen.repeats}`,
  );
}

describe(`kill -9 during submission of ${MESSAGES} mails, ${KILLS} times`, function () {
  this.timeout(600_000);
  let sink: MailSink;
  beforeEach(async () => {
    sink = await startMailSink();
  });
  afterEach(() => sink.stop());

  it('loses no acknowledged mail, repeats only deliveries in flight, and counts each message once', async () => {
    const seen = await handOver(sink, KILLS);
    const { postern, acknowledged, arrived, repeats } = seen;
    show('mail handed over', seen);
    expect(acknowledged.size).to.be.at.least(MESSAGES);
    expect(lostOf(seen), 'acknowledged, but never sent').to.deep.equal([]);
    for (const [subject, reply] of acknowledged) {
      const paths = new Set(arrived.get(subject)?.map(({ from }) => from));
      expect(paths.size, `${subject}: one message under two ids`).to.equal(1);
      expect([...paths][0]).to.contain(/queued as (\w+)/.exec(reply)?.[1] ?? 'an id');
    }
    expect(repeats, 'repeats').to.be.at.most(CONCURRENCY * KILLS);
    const { api } = createCaller(postern.base, KEY);
    await until(
      'the numbers',
      async () => (await api('/senders/info', { address: 'ada@example.org' })).sent === arrived.size,
      60_000,
    );
    expect(await postern.end()).to.equal(0);
  });

  it('loses mail when the 250 does not wait for the queue (control)', async () => {
    const seen = await handOver(sink, 1, {
      NODE_OPTIONS: `--import=${new URL('../support/faults/submit-early.ts', import.meta.url).href}`,
    });
    show('mail handed over, control', seen);
    await seen.postern.end('SIGKILL');
    // Of the second round, which no kill ends, some may still be on their way.
    expect(lostOf(seen).filter((subject) => subject.startsWith('r0-'))).not.to.deep.equal([]);
  });
});

const subjectOf = ({ raw }: Sunk): string => /^Subject: (\S+)\r?$/m.exec(raw)?.[1] ?? 'none';
