import { connect } from 'node:net';
import { expect } from 'chai';
import { figures } from '../support/attacks/figures.ts';
import { gap, inTurns } from '../support/attacks/in-turns.ts';
import { startLeaky } from '../support/attacks/leaky-starttls.ts';
import { startVictim, type Victim } from '../support/attacks/victim.ts';
import { KEY } from '../support/daemon.ts';
import type { HostPort } from '../support/mail.ts';
import { createClient } from '../support/smtp.ts';
import { plain } from '../support/submission.ts';

const fixture = (name: string) => new URL(`../fixtures/tls/${name}.pem`, import.meta.url).pathname;
const AT_ONCE = 8;

/** What is said in plaintext before STARTTLS, and what an attacker puts behind it. */
const BEFORE = ['EHLO plain.test', 'MAIL FROM:<plain@sender.test>', 'RCPT TO:<x@in.test>'];
const INJECTED = [
  'NOOP\r\n',
  'RSET\r\nMAIL FROM:<evil@sender.test>\r\nRCPT TO:<x@in.test>\r\nDATA\r\nSubject: evil\r\n\r\nx\r\n.\r\n',
  'EHLO evil.test\r\n',
  'MAIL FROM:<evil',
  '\r\n',
  '\0',
  'STARTTLS\r\n',
  `AUTH PLAIN ${plain(KEY)}\r\n`,
  `${'NOOP\r\n'.repeat(300)}`,
  'QUIT\r\n',
];

interface Attempt {
  readonly injected: string;
  readonly cut: number;
}
interface Outcome extends Attempt {
  readonly handshake: boolean;
  readonly extra: readonly string[];
  readonly remembered: readonly string[];
}

/** Cuts at every byte of STARTTLS and of the first that are injected; the last sends everything in one packet. */
const ATTEMPTS: readonly Attempt[] = INJECTED.flatMap((injected) => {
  const length = 'STARTTLS\r\n'.length + Math.min(injected.length, 40);
  return Array.from({ length }, (_, i) => ({ injected, cut: i + 1 })).concat({ injected, cut: 10 + injected.length });
});

/** Talks as an attacker in the middle would have it, and finds out what the other side makes of it in TLS. */
async function attempt(at: HostPort, { injected, cut }: Attempt): Promise<Outcome> {
  const client = createClient(connect(at).setNoDelay());
  await client.reply();
  for (const line of BEFORE) await client.say(line);
  const bytes = Buffer.from(`STARTTLS\r\n${injected}`, 'latin1');
  client.send(bytes.subarray(0, cut));
  if (cut < bytes.length) {
    await gap();
    client.send(bytes.subarray(cut));
  }
  const answer = await client.reply();
  if (!answer.startsWith('220')) throw new Error(`STARTTLS was answered: ${answer}`);
  const socket = await client.secure();
  // All that follows is from TLS; a server that talks first there answers injected commands.
  const handshake = socket.getProtocol() !== null && !socket.destroyed;
  const remembered: string[] = [];
  const asked = [
    'RCPT TO:<x@in.test>',
    'DATA',
    'MAIL FROM:<a@sender.test>',
    'EHLO tls.test',
    'MAIL FROM:<a@sender.test>',
  ];
  if (handshake) for (const line of asked) remembered.push((await client.say(line)).slice(0, 3));
  if (handshake) await gap(20);
  const extra = client.pending().map((reply) => reply.slice(0, 40));
  client.destroy();
  return { injected, cut, handshake, extra, remembered };
}

async function all(at: HostPort, attempts = ATTEMPTS): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  await inTurns(attempts, AT_ONCE, async (how) => {
    outcomes.push(await attempt(at, how));
  });
  return outcomes;
}

/**
 * Outcomes in which something of the plaintext lived on: answers to nobody's question, or other answers than a new
 * session's.
 */
const holes = (outcomes: readonly Outcome[], fresh: readonly string[]) =>
  outcomes
    .filter(({ handshake, extra, remembered }) => handshake && (extra.length > 0 || remembered.join() !== fresh.join()))
    .map(
      ({ injected, cut, extra, remembered }) =>
        `${JSON.stringify(injected.slice(0, 40))} at ${cut}: ${remembered.join()} and ${extra.join()}`,
    )
    .slice(0, 10);

describe('plaintext behind STARTTLS, in the same packet and split at every byte', () => {
  let victim: Victim;
  before(async () => {
    victim = await startVictim({
      env: {
        POSTERN_SMTP__MAX_LOOP_LAG_MS: '60000',
        POSTERN_SMTP__TLS__CERT: fixture('first.cert'),
        POSTERN_SMTP__TLS__KEY: fixture('first.key'),
        POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      },
    });
  });
  after(() => victim.stop());

  // RCPT, DATA and MAIL without EHLO; then EHLO, and MAIL, which on the submission listener wants a login first.
  for (const [name, fresh] of [
    ['smtp', ['503', '503', '503', '250', '250']],
    ['submission', ['503', '503', '503', '250', '530']],
  ] as const) {
    it(`is never executed, and no earlier command is remembered (${name})`, async () => {
      const at = name === 'smtp' ? victim.postern.smtp : victim.postern.submission[0];
      if (!at) throw new Error('no such listener');
      const outcomes = await all(at);
      const shaken = outcomes.filter(({ handshake }) => handshake);
      figures(15, {
        listener: name,
        sessions: outcomes.length,
        'handshakes done': shaken.length,
        'ended instead': outcomes.length - shaken.length,
        'replies to what was injected': shaken.reduce((sum, { extra }) => sum + extra.length, 0),
      });
      expect(holes(outcomes, fresh)).to.deep.equal([]);
      expect(shaken.length, 'attempts that came as far as TLS').to.be.above(0);
      expect(victim.posts()).to.have.length(0);
      expect(victim.faults()).to.deep.equal([]);
    });
  }

  it('is detected where a server executes it (control)', async () => {
    const leaky = await startLeaky();
    try {
      const outcomes = await all(
        leaky.at,
        ATTEMPTS.filter(({ injected, cut }) => injected === 'NOOP\r\n' && cut > 10),
      );
      expect(holes(outcomes, ['503', '503', '503', '250', '250'])).to.have.length.above(0);
    } finally {
      await leaky.stop();
    }
  });
});
