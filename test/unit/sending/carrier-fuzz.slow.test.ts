import { expect } from 'chai';
import { MX_CERT, MX_KEY } from '../../support/carrier-tls.ts';
import { carry, createCarrierWorld, TWO_MX } from '../../support/carrier-world.ts';
import { CLOSE, type Said, type Script } from '../../support/scripted-smtp.ts';

const ROUNDS = 300;

/** Numbers in [0, 1) that are the same in every run. */
function createChance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const ODD: readonly Said[] = [
  CLOSE,
  '421 4.3.2 closing',
  '450 4.2.0 later',
  '550 5.1.1 no',
  '250 ok',
  '354 go',
  '220 hello',
  '503 5.5.1 order',
  '250-more\r\n250 ok',
  '250 ok\r\n250 again',
  '250 ok\r\n550 5.0.0 no',
  '550 5.1.1 a\r\n250 b',
  'nonsense',
  '2',
  '25',
  '999 x',
  '000',
  '250\tok',
  '-250 ok',
  '\u0000\u0001',
  '250-',
  { bytes: '250', then: 'close' },
  { bytes: '550 5.1.1 x', then: 'close' },
  { bytes: '421 bye\r\n', then: 'close' },
  { bytes: '250 ok\r\n', then: 'close' },
];

describe('servers that reply at random', () => {
  const world = createCarrierWorld();
  afterEach(world.stop);

  it('get no message twice in one attempt, and break nothing', async function () {
    this.timeout(60_000);
    const chance = createChance(20_261_121);
    const script: Script = () => (chance() < 0.12 ? ODD[Math.floor(chance() * ODD.length)] : undefined);
    const first = await world.server(script, { tls: { cert: MX_CERT, key: MX_KEY }, offers: ['8BITMIME'] });
    const second = await world.server(script, { address: '127.0.0.11', port: first.port });
    // A missing or endless reply is waited for, but not for long here.
    const carrier = world.carrier({ zone: TWO_MX, timeoutMs: 400, hostTimeoutMs: 150 });
    const kinds = new Set<string>();
    for (let i = 0; i < ROUNDS; i += 10) {
      await Promise.all(
        Array.from({ length: 10 }, async (_, n) => {
          const attempt = await carry(carrier, { text: `Subject: ${i + n}\r\n\r\nx\r\n` });
          kinds.add(attempt.kind === 'answered' ? `${Math.floor(attempt.code / 100)}` : 'unanswered');
        }),
      );
    }
    expect([...kinds]).to.include.members(['2', 'unanswered']);
    expect(world.log.of('delivery.fault')).to.deep.equal([]);
    const subjects = [first, second]
      .flatMap(({ sessions }) => sessions.flatMap(({ messages }) => messages))
      .map((message) => /^Subject: \d+/.exec(message.toString())?.[0])
      .filter((subject) => subject !== undefined);
    expect(subjects.length).to.be.greaterThan(ROUNDS / 10);
    expect(new Set(subjects).size).to.equal(subjects.length);
  });
});
