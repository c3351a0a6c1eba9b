import { expect } from 'chai';
import { figures } from '../support/attacks/figures.ts';
import { gap, inTurns } from '../support/attacks/in-turns.ts';
import type { Patch } from '../support/attacks/patches.ts';
import { SMALL } from '../support/attacks/sizes.ts';
import { greeted, loggedIn, repliesToEnd } from '../support/attacks/talk.ts';
import { startVictim, type Victim } from '../support/attacks/victim.ts';
import { eventsOf } from '../support/events.ts';
import type { HostPort } from '../support/mail.ts';
import { type MailSink, startMailSink } from '../support/mail-sink.ts';
import { until } from '../support/until.ts';

// What some server or other has taken for the end of DATA, or may: each holds a bare CR, a bare LF or a NUL.
const BARE = [
  '\n.\n',
  '\n.\r\n',
  '\r\n.\n',
  '\r.\r',
  '\r.\r\n',
  '\r\n.\r',
  '\n.\r',
  '\r\n\0.\r\n',
  '\r\n.\0\r\n',
  '\r\n\0.\0\r\n',
  '\r\n.\r\r\n',
  '\r\r\n.\r\n',
  '\n\n.\n\n',
  '\r\n.\r\0\n',
  '\r\0\n.\r\n',
];
// Lines that are no end and nothing forbidden: content.
const CONTENT = [
  '\r\n..\r\n',
  '\r\n. \r\n',
  '\r\n.\t\r\n',
  '\r\n .\r\n',
  '\r\nBDAT 0 LAST\r\n',
  '\xe2\x80\xa8.\xe2\x80\xa8',
  '\x85.\x85',
  '\r\n=2E\r\n',
  '\r\n\x0b.\x0b\r\n',
];
const AT_ONCE = 16;

const fixture = (name: string) => new URL(`../fixtures/tls/${name}.pem`, import.meta.url).pathname;

interface Attempt {
  readonly ending: string;
  readonly cut: number | 'every';
}
interface Outcome extends Attempt {
  readonly number: number;
  readonly replies: readonly string[];
}

const first = (n: number, ending: string) => `From: a@sender.test\r\nSubject: first-${n}\r\n\r\ntext${ending}`;
const smuggled = (n: number) =>
  `MAIL FROM:<evil@sender.test>\r\nRCPT TO:<x@in.test>\r\nDATA\r\nFrom: a@sender.test\r\nSubject: evil-${n}\r\n\r\nx\r\n.\r\nQUIT\r\n`;

/** Every position of the message and what is behind it, or those in and around the ending; and all of them at once. */
function attempts(endings: readonly string[]): Attempt[] {
  return endings.flatMap((ending) => {
    const end = first(0, ending).length;
    const [from, to] = SMALL ? [end - ending.length, end] : [1, end + smuggled(0).length - 1];
    return [
      ...Array.from({ length: to - from + 1 }, (_, i) => ({ ending, cut: from + i })),
      { ending, cut: 'every' as const },
    ];
  });
}

describe('false ends of DATA, split at every byte', () => {
  let victim: Victim;
  let sink: MailSink;
  let number = 0;

  async function start(patches: readonly Patch[] = []) {
    sink = await startMailSink();
    victim = await startVictim({
      patches,
      env: {
        POSTERN_SMTP__MAX_LOOP_LAG_MS: '60000',
        POSTERN_SMTP__TLS__CERT: fixture('first.cert'),
        POSTERN_SMTP__TLS__KEY: fixture('first.key'),
        POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
        POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${sink.port}`,
        POSTERN_OUTBOUND__QUOTA: 'false',
      },
    });
  }
  afterEach(async () => {
    await victim.stop();
    await sink.stop();
  });

  async function attempt(at: HostPort, how: Attempt, login: boolean): Promise<Outcome> {
    const n = 100_000 + number++; // as long as each other, so that cuts mean the same
    const client = await (login ? loggedIn(at) : greeted(at));
    for (const line of ['MAIL FROM:<a@sender.test>', 'RCPT TO:<x@in.test>', 'DATA']) await client.say(line);
    const bytes = Buffer.from(first(n, how.ending) + smuggled(n), 'latin1');
    const cuts = how.cut === 'every' ? Array.from(bytes, (_, i) => i + 1) : [how.cut, bytes.length];
    let from = 0;
    for (const to of cuts) {
      client.send(bytes.subarray(from, to));
      from = to;
      await gap(how.cut === 'every' ? 1 : 2);
    }
    const replies = await repliesToEnd(client);
    client.destroy();
    return { ...how, number: n, replies: replies.map((reply) => reply.slice(0, 9)) };
  }

  async function all(endings: readonly string[], login: boolean): Promise<Outcome[]> {
    const at = login ? victim.postern.submission[0] : victim.postern.smtp;
    if (!at) throw new Error('no submission');
    const outcomes: Outcome[] = [];
    await inTurns(attempts(endings), AT_ONCE, async (how) => {
      outcomes.push(await attempt(at, how, login));
    });
    return outcomes;
  }

  /** Subjects of all mail that came out at the other side. */
  const subjects = () => [
    ...victim.posts().map((post) => String(eventsOf(post)[0].msg.subject)),
    ...sink.mails.map(({ raw }) => /^Subject: (.*?)\r?$/m.exec(raw)?.[1] ?? ''),
  ];
  const accepted = () => victim.postern.lines.filter(({ event }) => event === 'message.accepted').length;
  /** Attempts after which there was more than one message, or a bare line end that was let through. */
  const holes = (outcomes: readonly Outcome[], expected: readonly string[]) =>
    outcomes
      .filter(({ replies }) => replies.join() !== expected.join())
      .map(({ ending, cut, replies }) => `${JSON.stringify(ending)} at ${cut}: ${replies.join()}`);

  it('never turn one message into two, on either listener, and end the connection', async () => {
    await start();
    let [tried, contents] = [0, 0];
    for (const login of [false, true]) {
      const bare = await all(BARE, login);
      expect(holes(bare, ['521 5.5.2'])).to.deep.equal([]);
      const content = await all(CONTENT, login);
      expect(holes(content, ['250 2.0.0', '221 2.0.0'])).to.deep.equal([]);
      tried += bare.length + content.length;
      contents += content.length;
    }
    await until('all that was taken', () => accepted() >= contents && subjects().length >= contents, 60_000);
    figures(15, {
      'ends of DATA': BARE.length + CONTENT.length,
      sessions: tried,
      'messages of those that were content': contents,
      'accepted in all': accepted(),
      smuggled: subjects().filter((subject) => subject.startsWith('evil')).length,
    });
    expect(accepted()).to.equal(contents);
    expect(subjects().filter((subject) => !subject.startsWith('first-'))).to.deep.equal([]);
    expect(new Set(subjects()).size).to.equal(contents);
    expect(victim.faults()).to.deep.equal([]);
  });

  it('would smuggle a message in if a bare LF ended a line (control)', async () => {
    await start([
      {
        file: 'smtp/reception.ts',
        from: "if (byte === NUL || (byte === LF && refuses)) return done('bare');",
        to: "if (byte === NUL) return done('bare');",
      },
      {
        file: 'smtp/reception.ts',
        from: 'if (byte === CR) {\n          from',
        to: "if (byte === LF) return done('end', chunk.subarray(i + 1));\n        if (byte === CR) {\n          from",
      },
    ]);
    const outcomes = await all(['\n.\n'], false);
    expect(holes(outcomes, ['521 5.5.2'])).to.have.length(outcomes.length);
    await until('what was smuggled', () => subjects().some((subject) => subject.startsWith('evil')));
  });
});
