import { expect } from 'chai';
import { evaluateConditions, type MailFacts } from '../../../src/inbound/conditions.ts';
import { ACTION_NAMES, decide, type RouteChoice } from '../../../src/inbound/decision.ts';
import { matchesAny } from '../../../src/inbound/patterns.ts';
import type { When } from '../../../src/store/rows/domains.ts';
import { growth } from '../../support/growth.ts';

const CONTENT = {
  from: 'ann@good.test',
  subject: 'Invoice 7',
  fields: [{ name: 'X-Kind', value: 'alarm' }],
  size: 1000,
  automated: false,
};
/** Of a message whose header is too large to read. */
const CUT = { ...CONTENT, cut: true as const };
const auth = (result: string, authenticated = result === 'pass') => ({
  authenticated,
  dmarc: { result, policy: null, aligned: false, domain: null },
});

let state = 7;
/** The same numbers in each run. */
function random(below: number): number {
  state = (state * 1103515245 + 12345) % 2147483648;
  return Math.floor((state / 2147483648) * below);
}
const oneOf = <T>(all: readonly T[]): T => all[random(all.length)] as T;

describe('the conditions of a route', () => {
  const table: readonly (readonly [string, When, MailFacts, ReturnType<typeof evaluateConditions>])[] = [
    ['the sender by a glob', { sender: ['*@good.test'] }, { sender: 'Ann@GOOD.test' }, true],
    ['the empty sender', { sender: ['<>'] }, { sender: '' }, true],
    ['a sender that is not known', { sender: ['*'] }, {}, 'sender'],
    ['the author', { from: ['x@y.test', 'ann@*'] }, { content: CONTENT }, true],
    ['no author', { from: ['?*'] }, { content: { ...CONTENT, from: null } }, false],
    ['the subject in any case', { subject: ['invoice ?'] }, { content: CONTENT }, true],
    ['a field', { header: [{ name: 'x-kind', is: ['al*'] }] }, { content: CONTENT }, true],
    ['a field with another value', { header: [{ name: 'X-Kind', is: ['b*'] }] }, { content: CONTENT }, false],
    ['a field that must not be there', { header: [{ name: 'X-Kind', is: [] }] }, { content: CONTENT }, false],
    ['a field that is not there', { header: [{ name: 'X-Other', is: [] }] }, { content: CONTENT }, true],
    ['the size', { size: { over: 999, under: 1001 } }, { content: CONTENT }, true],
    ['a size at the bound', { size: { over: 1000 } }, { content: CONTENT }, false],
    ['content that could not be read', { subject: ['*'] }, { content: null }, 'unknown'],
    ['content that nobody has looked at', { subject: ['*'] }, { sender: 'x@y' }, 'content'],
    ['automated mail', { automated: true }, { content: { ...CONTENT, automated: true } }, true],
    ['mail of a person', { automated: true }, { content: CONTENT }, false],
    ['mail of a person where that is asked for', { automated: false }, { content: CONTENT }, true],
    ['what is automated in a header that is too large', { automated: false }, { content: CUT }, 'unreadable'],
    ['what the brake marked, before anybody reads it', { automated: true }, { loop: true }, true],
    ['what the brake marked where people are asked for', { automated: false }, { loop: true, content: CONTENT }, false],
    ['an author who may be believed', { authenticated: true }, { auth: auth('pass') }, true],
    ['one who may not', { authenticated: true }, { auth: auth('fail') }, false],
    ['one vouched for by a sealer', { authenticated: true }, { auth: auth('fail', true) }, true],
    ['an author while DNS is silent', { authenticated: false }, { auth: auth('temperror') }, 'unknown'],
    ['DMARC while DNS is silent', { dmarc: ['fail'] }, { auth: auth('temperror') }, 'unknown'],
    ['DMARC that is asked for as unknown', { dmarc: ['fail', 'unknown'] }, { auth: auth('temperror') }, true],
    ['a policy that makes no sense', { dmarc: ['none'] }, { auth: auth('permerror') }, true],
    ['verdicts that could not be taken', { dmarc: ['fail'] }, { auth: null }, 'unknown'],
    ['spam', { spam: ['spam'] }, { scan: { spam: 'spam', virus: 'unknown' } }, true],
    ['a virus that nobody looked for', { virus: ['infected'] }, { scan: { spam: 'ham', virus: 'unknown' } }, 'unknown'],
    ['no scanner', { spam: ['ham'] }, { scan: null }, 'unknown'],
    ['the author in a header that is too large', { from: ['ann@*'] }, { content: CUT }, 'unreadable'],
    ['a field that is not in its beginning', { header: [{ name: 'X-Other', is: [] }] }, { content: CUT }, 'unreadable'],
    ['the size of such a message', { size: { over: 999 } }, { content: CUT }, true],
    ['its DMARC as a failure', { dmarc: ['fail'] }, { content: CUT, auth: auth('permerror') }, true],
    ['its DMARC as unknown', { dmarc: ['unknown'] }, { content: CUT, auth: auth('permerror') }, true],
    ['its DMARC as nothing better', { dmarc: ['pass', 'none'] }, { content: CUT, auth: auth('permerror') }, false],
    ['its author as not to be believed', { authenticated: false }, { content: CUT, auth: auth('permerror') }, true],
    ['it beside what is unknown', { subject: ['*'], spam: ['spam'] }, { content: CUT, scan: null }, 'unknown'],
    ['it beside what is surely false', { subject: ['*'], size: { under: 1 } }, { content: CUT }, false],
    ['what is surely false beside what is not known', { subject: ['x'], spam: ['spam'] }, { content: CONTENT }, false],
    ['what nobody looked at beside what is unknown', { subject: ['*'], spam: ['spam'] }, { scan: null }, 'content'],
  ];
  for (const [name, when, facts, expected] of table)
    it(`return ${String(expected)} for ${name}`, () => {
      expect(evaluateConditions(when, facts)).to.equal(expected);
    });

  it('match texts as equivalent regular expressions do', () => {
    const letters = ['a', 'b', '*', '?', '*'];
    for (let n = 0; n < 20_000; n++) {
      const glob = Array.from({ length: random(7) }, () => oneOf(letters)).join('');
      const text = Array.from({ length: random(8) }, () => oneOf(['a', 'b'])).join('');
      const regular = new RegExp(`^${glob.replaceAll('*', '.*').replaceAll('?', '.')}$`, 's');
      expect(matchesAny([glob], text), `${glob} on ${text}`).to.equal(regular.test(text));
    }
  });

  it('take no longer for a hostile subject of 64 kB than for one of 4 kB', () => {
    const when = { subject: ['*aaaaaaaaaaaaaaaaaaaaab', '*?aaaaaaaaaaaaaaaaaaac*'] };
    const look = (length: number) => {
      const facts = { content: { ...CONTENT, subject: 'a'.repeat(length) } };
      for (let i = 0; i < 200; i++) evaluateConditions(when, facts);
    };
    expect(growth(look, 4000, 8)).to.be.below(8);
  });
});

describe('the decision between routes', () => {
  const choice = (routeId: string, more: Partial<RouteChoice> = {}): RouteChoice => ({
    match: { kind: 'inbound', account: 'a', routeId, pattern: '*', url: `https://${routeId}.test/` },
    when: null,
    action: 'post',
    tags: [],
    ...more,
  });

  it('evaluates only the facts that decide', () => {
    const choices = [
      choice('1', { when: { subject: ['x'], spam: ['spam'] } }),
      choice('2', { when: { dmarc: ['pass'] } }),
    ];
    expect(decide(choices, { sender: 'x' })).to.deep.equal({ kind: 'open', fact: 'content' });
    expect(decide(choices, { content: CONTENT })).to.deep.equal({ kind: 'open', fact: 'auth' });
    expect(decide(choices, { content: CONTENT, auth: auth('pass') })).to.have.nested.property('match.routeId', '2');
  });

  it('never lets a header that is too large bypass a route that would stop the message, and loses none', () => {
    const when = { from: ['ceo@*'] };
    const last = choice('last', { tags: ['rest'] });
    const taken = (action: RouteChoice['action']) =>
      decide([choice('1', { action, when, tags: ['t'] }), last], { content: CUT });
    expect(taken('reject')).to.deep.equal({ kind: 'rejected', match: choice('1').match });
    for (const action of ['hold', 'discard'] as const)
      expect(taken(action)).to.deep.equal({
        kind: 'matched',
        match: { ...choice('1').match, tags: ['t'], fate: 'held' },
      });
    for (const action of ['post', 'tag'] as const)
      expect(taken(action)).to.deep.equal({ kind: 'matched', match: { ...last.match, tags: ['rest'] } });
  });

  it('never loses mail because of unknown facts, for any routes', () => {
    const conditions: readonly When[] = [
      { spam: ['spam'] },
      { virus: ['infected'] },
      { dmarc: ['fail'] },
      { authenticated: false },
      { subject: ['*7'] },
      { spam: ['spam'], subject: ['nothing'] },
      { dmarc: ['none', 'fail'], virus: ['infected'] },
    ];
    const unknown: MailFacts = { sender: 'x@y', content: CONTENT, auth: auth('temperror'), scan: null };
    let lost = 0;
    for (let n = 0; n < 5000; n++) {
      const choices = Array.from({ length: 1 + random(5) }, (_, i) =>
        choice(String(i), { action: oneOf(ACTION_NAMES), when: random(6) === 0 ? null : oneOf(conditions) }),
      );
      const decision = decide(choices, unknown);
      const isLost = decision.kind === 'rejected' || (decision.kind === 'matched' && decision.match.fate === 'dropped');
      if (!isLost) continue;
      lost++;
      // The route that took it holds for all that the unknown may turn out to be.
      const route = choices[Number(decision.match.routeId)];
      for (const result of ['pass', 'fail', 'none'])
        for (const spam of ['ham', 'spam'] as const)
          for (const virus of ['clean', 'infected'] as const)
            expect(
              evaluateConditions(route?.when ?? null, { ...unknown, auth: auth(result), scan: { spam, virus } }),
            ).to.equal(true);
    }
    expect(lost).to.be.above(100);
  });
});
