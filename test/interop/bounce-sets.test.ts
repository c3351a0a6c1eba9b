import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { classifyReturned, type ReturnClassification } from '../../src/returns/bounce-message.ts';

// Real bounces and what others found in them: the messages of Sisimai's set-of-emails, and the tables of its tests. Neither is part of this
// project. `git clone https://github.com/sisimai/p5-sisimai`, then `BOUNCES=DIR npx mocha test/interop/bounce-sets.test.ts`.

const DIR = process.env.BOUNCES ?? '';
const MESSAGES = join('set-of-emails', 'maildir', 'bsd');

/** What the set says of one message: a reason for each of its recipients, and whether it counts as hard. */
interface Expected {
  readonly file: string;
  readonly reasons: readonly { readonly reason: string; readonly hard: boolean }[];
}

/** `'02' => [['5.1.1', '550', 'userunknown', 1], [...]],` in `t/653-lhost-exim.t` is of `lhost-exim-02.eml`. */
const ROW = /^\s*'(\d+)'\s*=>\s*\[((?:[^[\]]*\[[^[\]]*\])+)/gm;
const CELL = /\[\s*'[^']*'\s*,\s*'[^']*'\s*,\s*'(\w+)'\s*,\s*([01])\s*\]/g;

function expectedIn(dir: string): Expected[] {
  return readdirSync(join(dir, 't')).flatMap((test) => {
    const name = /^\d+-((?:lhost|rhost)-\w+|rfc3464|rfc3834|arf)\.t$/.exec(test)?.[1];
    if (name === undefined) return [];
    return [...readFileSync(join(dir, 't', test), 'utf8').matchAll(ROW)].map(([, number, cells = '']) => ({
      file: `${name}-${number}.eml`,
      reasons: [...cells.matchAll(CELL)].map(([, reason = '', hard]) => ({ reason, hard: hard === '1' })),
    }));
  });
}

/** Reports about mail that was delivered, and answers of people's programs: no bounces. */
const NO_BOUNCE = new Set(['delivered', 'feedback', 'vacation']);

function oursOf(said: ReturnClassification): 'hard' | 'soft' | 'not recognised' {
  if (said.kind === 'failed') return said.bounce.kind === 'hard_bounce' ? 'hard' : 'soft';
  return said.kind === 'delayed' ? 'soft' : 'not recognised';
}

const ruleOf = (said: ReturnClassification) =>
  'bounce' in said ? said.bounce.rule : 'why' in said ? said.why : said.kind;

describe('real bounces of Sisimai', () => {
  it('are recognised and classified as in its set', function () {
    if (!existsSync(join(DIR, MESSAGES))) {
      process.stdout.write(
        'real bounces are not judged: BOUNCES=DIR names a checkout of github.com/sisimai/p5-sisimai\n',
      );
      return this.skip();
    }
    this.timeout(60_000);
    const disagreements = new Map<string, string[]>();
    const note = (kind: string, text: string) => disagreements.set(kind, [...(disagreements.get(kind) ?? []), text]);
    const tally = {
      bounces: 0,
      recognised: 0,
      agreed: 0,
      hard: 0,
      hardAgreed: 0,
      soft: 0,
      softAgreed: 0,
      others: 0,
      othersTaken: 0,
    };
    for (const { file, reasons } of expectedIn(DIR)) {
      const path = join(DIR, MESSAGES, file);
      if (!existsSync(path) || reasons.length === 0) continue;
      const bytes = Buffer.from(readFileSync(path, 'latin1').replace(/\r?\n|\r/g, '\r\n'), 'latin1');
      const said = classifyReturned('bounce', bytes, { email: null, sender: '' });
      const ours = oursOf(said);
      const wanted = [...new Set(reasons.map(({ reason }) => reason))].join('+');
      const text = `${file}: ${'diag' in said ? said.diag.replace(/\s+/g, ' ').slice(0, 160) : ''}`;
      if (reasons.every(({ reason }) => NO_BOUNCE.has(reason))) {
        tally.others++;
        if (ours === 'not recognised') continue;
        tally.othersTaken++;
        note(`${wanted}, ours ${ours} (${ruleOf(said)})`, text);
        continue;
      }
      // Of several recipients we judge one.
      const kinds = new Set(reasons.map(({ hard }) => (hard ? 'hard' : 'soft')));
      const kind = kinds.has('hard') ? 'hard' : 'soft';
      const agrees = ours !== 'not recognised' && kinds.has(ours);
      tally.bounces++;
      tally[kind]++;
      if (ours !== 'not recognised') tally.recognised++;
      if (agrees) {
        tally.agreed++;
        tally[kind === 'hard' ? 'hardAgreed' : 'softAgreed']++;
      } else note(`${wanted} (${kind}), ours ${ours} (${ruleOf(said)})`, text);
    }
    const lines = [
      `${tally.bounces} bounces: ${tally.recognised} recognised, ${tally.agreed} judged alike`,
      `  hard by the set: ${tally.hardAgreed} of ${tally.hard}; soft by the set: ${tally.softAgreed} of ${tally.soft}`,
      `${tally.others} that are no bounces: ${tally.othersTaken} taken for one`,
      ...[...disagreements]
        .toSorted(([, a], [, b]) => b.length - a.length)
        .flatMap(([kind, texts]) => [`${texts.length} ${kind}`, ...texts.map((text) => `    ${text}`)]),
    ];
    process.stdout.write(`${lines.join('\n')}\n`);
    expect(tally.bounces).to.be.above(400);
    // docs/proof.md has the figures, and what is behind each kind of disagreement.
    expect(tally.recognised / tally.bounces).to.be.above(0.99);
    expect(tally.hardAgreed / tally.hard).to.be.above(0.9);
    expect(tally.softAgreed / tally.soft).to.be.above(0.85);
  });
});
