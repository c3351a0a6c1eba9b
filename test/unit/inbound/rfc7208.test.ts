import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { systemClock } from '../../../src/base/clock.ts';
import { createAuthenticator } from '../../../src/inbound/verdicts/authenticate.ts';
import type { ZoneNode, ZoneRecords } from '../../support/zone.ts';
import { zoneResolver } from '../../support/zone.ts';

/**
 * Cases of the suite that mailauth answers otherwise, and how. One that begins to pass is to be taken off this list.
 */
const KNOWN_FAILURES: ReadonlyMap<string, string> = new Map<string, string>([]);

const oneOrMore = z.union([z.string(), z.array(z.string())]);
const record = z.union([
  z.string(),
  z.record(z.string(), z.union([z.string(), z.array(z.union([z.string(), z.number()]))])),
]);
const suiteSection = z.object({
  description: z.string(),
  tests: z.record(
    z.string(),
    z.object({ helo: z.string(), host: z.string(), mailfrom: z.string(), result: oneOrMore }),
  ),
  zonedata: z.record(z.string(), z.array(record)),
});

const file = new URL('../../fixtures/spf/rfc7208-tests.yml', import.meta.url);
const sections = parseAllDocuments(readFileSync(file, 'utf8'), { uniqueKeys: false }).map((document) =>
  suiteSection.parse(document.toJS()),
);

type Section = z.infer<typeof suiteSection>;

/**
 * The suite's records as our zone has them. Records of the type SPF stand for TXT where there is no TXT (see the
 * suite's head).
 */
function toZone(zonedata: Section['zonedata']): ZoneRecords {
  return Object.fromEntries(Object.entries(zonedata).map(([name, list]) => [name, toNode(list)]));
}

function toNode(list: Section['zonedata'][string]): ZoneNode {
  const all = list.flatMap((item) => (typeof item === 'string' ? [] : Object.entries(item)));
  const of = (type: string) => all.filter(([key]) => key === type).map(([, value]) => value);
  const hosts = (type: string) =>
    of(type)
      .map(String)
      .map((name) => name.replace(/\.$/, ''));
  const txt = of('TXT').length > 0 ? of('TXT').filter((value) => value !== 'NONE') : of('SPF');
  const slow = list.includes('TIMEOUT');
  // A TIMEOUT at the end of a list is for the types that the list does not have.
  const fails = !slow
    ? undefined
    : Object.fromEntries(
        (['A', 'AAAA', 'MX', 'TXT', 'PTR'] as const)
          .filter((type) => (type === 'TXT' ? txt : of(type)).length === 0)
          .map((type) => [type, 'timeout' as const]),
      );
  return {
    A: hosts('A'),
    AAAA: hosts('AAAA'),
    PTR: hosts('PTR'),
    TXT: txt.map((value) => (Array.isArray(value) ? value.map(String) : value)),
    MX: of('MX')
      .filter((value) => Array.isArray(value))
      .map(([priority, exchange]) => ({ priority: Number(priority), exchange: String(exchange) })),
    ...(of('CNAME')[0] === undefined ? {} : { CNAME: String(of('CNAME')[0]).replace(/\.$/, '') }),
    ...(fails === undefined ? {} : { fails }),
  };
}

const passed: string[] = [];

describe('the RFC 7208 suite', () => {
  for (const section of sections) {
    describe(section.description, () => {
      const resolver = zoneResolver(toZone(section.zonedata));
      const settings = {
        questionsPerMessage: 1000,
        budgetMs: 60_000,
        hostname: 'receiver.example',
        trustedSealers: [],
      };
      const authenticator = createAuthenticator({ resolver, settings, clock: systemClock });

      for (const [name, test] of Object.entries(section.tests)) {
        const known = KNOWN_FAILURES.get(name);
        it(known === undefined ? name : `${name} (known: ${known})`, async () => {
          const client = { address: test.host, helo: test.helo, tls: null };
          const verdicts = await authenticator.authenticate(
            { kind: 'memory', bytes: new Uint8Array() },
            { mailFrom: test.mailfrom, client },
          );
          const wanted = [test.result].flat();
          if (known !== undefined) return expect(wanted, `${name} passes now`).not.to.include(verdicts.spf.result);
          expect(wanted).to.include(verdicts.spf.result);
          passed.push(name);
        });
      }
    });
  }
});

describe('the RFC 7208 suite as a whole', () => {
  it('has 203 cases; all pass except known failures', () => {
    expect(sections.flatMap((section) => Object.keys(section.tests))).to.have.length(203);
    expect(passed.length)
      .to.equal(203 - KNOWN_FAILURES.size)
      .and.to.be.at.least(196);
  });
});
