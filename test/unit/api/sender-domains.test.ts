import { createPrivateKey, createPublicKey } from 'node:crypto';
import { expect } from 'chai';
import { createDomainKeys, newKeyPair } from '../../../src/sending/domains/keys.ts';
import { newSenderDomain, noteSenderDomain } from '../../../src/store/rows/domains.ts';
import { ACCOUNT, type ApiWorld, HOUR_MS, OTHER_ACCOUNT, OTHER_KEY, startApi } from '../../support/api.ts';
import { drivers } from '../../support/database.ts';
import { changingResolver, TEST_KEYS, TEST_SPF, TEST_TXT } from '../../support/senders.ts';
import { until } from '../../support/until.ts';
import type { ZoneNode } from '../../support/zone.ts';

interface Check {
  readonly valid: boolean;
  readonly valid_after: string | null;
  readonly error: string | null;
}
interface Asked {
  readonly domain: string;
  readonly last_tested_at: string | null;
  readonly spf: Check;
  readonly dkim: Check;
  readonly verified_at: string | null;
  readonly valid_signing: boolean;
}
const GOOD: Check = { valid: true, valid_after: null, error: null };
const KEY_NAME = 'postern._domainkey.shop.example';
/** Where mail to the domains goes. */
const MX = [{ exchange: 'mail.example.net', priority: 10 }];
const NO_SPF = { valid: false, valid_after: null, error: "This domain doesn't have an SPF record." };

for (const driver of drivers) {
  describe(`sender domains, ${driver.name}`, () => {
    let world: ApiWorld;
    let zone: Record<string, ZoneNode>;
    beforeEach(async () => {
      zone = {
        'shop.example': { TXT: [TEST_SPF], ttl: 600, MX },
        'xn--bcher-kva.example': { MX },
        [KEY_NAME]: { TXT: [TEST_TXT], ttl: 300 },
      };
      world = await startApi({
        database: (log) => driver.open({ log, crowded: true }),
        deps: { resolver: changingResolver(() => zone) },
      });
    });
    afterEach(() => world.stop());

    const check = async (domain = 'shop.example', key?: string): Promise<Asked> =>
      (await world.call('/senders/check-domain', { domain, ...(key && { key }) })).body;
    const faultOf = ({ status, body }: { status: number; body: any }) => {
      expect({ status, name: body.name, code: body.code }).to.deep.equal({
        status: 422,
        name: 'ValidationError',
        code: -2,
      });
      return JSON.parse(body.message.slice('Validation error: '.length));
    };
    /** The token in the newest mail to an address. */
    async function tokenFor(email: string): Promise<string> {
      const mail = await until('the mail', () => world.senders.mailer.mails.findLast(({ to }) => to === email));
      return /https:\/\/postern\.test\/verify\/([\w-]{22})\n/.exec(mail.text)?.[1] ?? '';
    }
    async function verified(key?: string, mailbox = 'postmaster'): Promise<void> {
      await world.call('/senders/verify-domain', { domain: 'shop.example', mailbox, ...(key && { key }) });
      expect(
        (await fetch(`${world.base}/verify/${await tokenFor(`${mailbox}@shop.example`)}`, { method: 'POST' })).status,
      ).to.equal(200);
    }

    it('are added once, in any spelling', async () => {
      const first = await world.call('/senders/add-domain', { domain: 'Bücher.Example' });
      expect(first.body).to.include({ domain: 'xn--bcher-kva.example', last_tested_at: null, valid_signing: false });
      await world.clock.advance(HOUR_MS);
      for (const domain of ['XN--BCHER-KVA.example.', 'bücher.example', ' BÜCHER.EXAMPLE '])
        expect((await world.call('/senders/add-domain', { domain })).body).to.deep.equal(first.body);
      expect((await world.call('/senders/domains')).body.map(({ domain }: Asked) => domain)).to.deep.equal([
        'example.com',
        'xn--bcher-kva.example',
      ]);
    });

    it('are one row after fifty concurrent additions', async () => {
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, i) =>
          world.call(['/senders/add-domain', '/senders/check-domain', '/senders/domain-key'][i % 3] ?? '', {
            domain: i % 2 ? 'shop.example' : 'SHOP.example',
          }),
        ),
      );
      expect(new Set(answers.map(({ status }) => status))).to.deep.equal(new Set([200]));
      expect(await world.store.senderDomains.many({ account: ACCOUNT, domain: 'shop.example' })).to.have.length(1);
      expect(await world.store.domainKeys.many({})).to.have.length(1);
      expect(await check()).to.deep.include({ spf: GOOD, dkim: GOOD });
    }).timeout(20_000);

    it('reject invalid mail domains', async () => {
      const wrong = [
        '',
        ' ',
        '.',
        'example',
        'a b.example',
        'a..example',
        '-a.example',
        '192.0.2.1',
        '[192.0.2.1]',
        'user@shop.example',
        'http://shop.example',
        'shop.example/x',
        'shop.example:25',
        '*.shop.example',
        '<b>shop.example</b>',
        'shop.example\r\nBcc: victim@example.com',
        'shop\r\n.example',
        'shop.example\0',
        'shop\u2028.example',
        'shop.example, other.example',
        `${'a'.repeat(64)}.example`,
        `${'a.'.repeat(127)}example`,
        '\u202eelpmaxe.pohs',
      ];
      for (const path of [
        '/senders/add-domain',
        '/senders/check-domain',
        '/senders/verify-domain',
        '/senders/domain-key',
      ]) {
        for (const domain of wrong)
          expect(
            faultOf(await world.call(path, { domain, mailbox: 'postmaster' })),
            `${path} ${JSON.stringify(domain)}`,
          ).to.have.property('domain');
      }
      expect(await world.store.senderDomains.many({})).to.have.length(1);
      expect(world.senders.mailer.mails).to.deep.equal([]);
    }).timeout(20_000);

    it('are tested on request, and added if missing', async () => {
      expect(await check()).to.deep.equal({
        domain: 'shop.example',
        created_at: '2026-01-05 12:00:00',
        last_tested_at: '2026-01-05 12:00:00',
        spf: GOOD,
        dkim: GOOD,
        verified_at: null,
        valid_signing: false,
      });
      zone = {};
      await world.clock.advance(1000);
      expect(await check()).to.deep.include({
        last_tested_at: '2026-01-05 12:00:01',
        spf: { valid: false, valid_after: null, error: 'This domain does not exist.' },
        dkim: { valid: false, valid_after: null, error: 'There is no DKIM record at postern._domainkey.shop.example.' },
      });
    });

    it('wait for the TTL after a record becomes valid, but not if it was valid at the first test', async () => {
      const good = zone;
      zone = { [KEY_NAME]: good[KEY_NAME] ?? {}, 'shop.example': { A: ['192.0.2.1'] } };
      expect(await check()).to.deep.include({ spf: NO_SPF, dkim: GOOD });
      await verified();
      zone = good;
      const spf = { valid: true, valid_after: '2026-01-05 12:10:00', error: null };
      expect(await check()).to.deep.include({ spf, dkim: GOOD, valid_signing: false });
      await world.clock.advance(599_000);
      expect(await check(), 'a later test does not begin the wait anew').to.deep.include({ spf, valid_signing: false });
      await world.clock.advance(1000);
      expect((await world.call('/senders/domains')).body[1]).to.deep.include({ spf, valid_signing: true });
      zone = { ...good, 'shop.example': { A: ['192.0.2.1'] } };
      expect(await check()).to.deep.include({ spf: NO_SPF, valid_signing: false });
      zone = { ...good, 'shop.example': { TXT: [TEST_SPF], ttl: 100_000_000 } };
      expect((await check()).spf, 'a TTL of years counts as a week').to.deep.equal({
        valid: true,
        valid_after: '2026-01-12 12:10:00',
        error: null,
      });
    });

    it('keep the last result while the DNS does not answer', async () => {
      const good = zone;
      zone = { 'shop.example': { fails: 'timeout' }, [KEY_NAME]: { fails: 'servfail' } };
      const mute = {
        valid: false,
        valid_after: null,
        error: "This domain's DNS could not be reached. It will be tested again.",
      };
      expect(await check()).to.deep.include({ last_tested_at: null, spf: mute, dkim: mute });
      zone = good;
      expect(await check(), 'silence was not an invalid record').to.deep.include({
        last_tested_at: '2026-01-05 12:00:00',
        spf: GOOD,
        dkim: GOOD,
      });
      zone = { 'shop.example': { fails: 'timeout' }, [KEY_NAME]: { TXT: ['p=x'] } };
      await world.clock.advance(1000);
      expect(await check())
        .to.deep.include({ last_tested_at: '2026-01-05 12:00:01', spf: GOOD })
        .and.to.have.nested.property('dkim.valid', false);
      zone = { 'shop.example': { fails: 'timeout' }, [KEY_NAME]: { fails: 'timeout' } };
      await world.clock.advance(1000);
      expect(await check())
        .to.deep.include({ last_tested_at: '2026-01-05 12:00:01', spf: GOOD })
        .and.to.have.nested.property('dkim.valid', false);
    });

    it('sign only for accounts that verified them, each separately', async () => {
      expect(await check()).to.include({ valid_signing: false, verified_at: null });
      const before = await check('shop.example', OTHER_KEY);
      await verified();
      expect(await check()).to.include({ valid_signing: true, verified_at: '2026-01-05 12:00:00' });
      expect(await check('shop.example', OTHER_KEY), 'the other account sees what it saw').to.deep.equal(before);
      expect(
        (await world.call('/senders/verify-domain', { domain: 'shop.example', mailbox: 'admin' })).body,
      ).to.deep.equal({ status: 'already_verified', domain: 'shop.example', email: 'admin@shop.example' });
      expect(
        (await world.call('/senders/verify-domain', { key: OTHER_KEY, domain: 'shop.example', mailbox: 'admin' })).body,
      ).to.deep.equal({ status: 'sent', domain: 'shop.example', email: 'admin@shop.example' });
      await verified(OTHER_KEY, 'hostmaster');
      expect(await check('shop.example', OTHER_KEY)).to.include({ valid_signing: true });
      expect(await check()).to.include({ valid_signing: true });
    });

    it('share one key among accounts; its private half is in no record, answer or log', async () => {
      for (const key of [undefined, OTHER_KEY]) {
        expect(
          (await world.call('/senders/domain-key', { domain: 'shop.example', ...(key && { key }) })).body,
        ).to.deep.include({
          name: KEY_NAME,
          txt: TEST_TXT,
          selector: 'postern',
          spf_include: 'include:spf.mx.postern.test',
        });
      }
      const shown = JSON.stringify([
        await check(),
        (await world.call('/senders/domains')).body,
        (await world.call('/senders/domain-key', { domain: 'shop.example' })).body,
        world.log.lines,
      ]);
      expect(shown).to.not.contain('PRIVATE').and.to.not.contain('VGhlIHNlY3JldA');
      expect((await world.store.domainKeys.one({ id: 'shop.example' }))?.privateKey).to.equal(TEST_KEYS.privateKey);
    });

    it('are all listed by name, only those of the account', async () => {
      for (const domain of ['b.example', 'a.example', 'c.example']) await world.call('/senders/add-domain', { domain });
      await world.call('/senders/add-domain', { domain: 'theirs.example', key: OTHER_KEY });
      const list = async (params: object = {}) =>
        (await world.call('/senders/domains', params)).body.map(({ domain }: Asked) => domain);
      expect(await list()).to.deep.equal(['a.example', 'b.example', 'c.example', 'example.com']);
      expect(await list({ after: 'B.example' })).to.deep.equal(['c.example', 'example.com']);
      expect(await list({ after: null, key: OTHER_KEY })).to.deep.equal(['theirs.example']);
      for (let i = 0; i < 1001; i++)
        await world.store.senderDomains.insert(
          newSenderDomain(OTHER_ACCOUNT, `d${String(i).padStart(4, '0')}.example`, new Date()),
        );
      const all = await list({ key: OTHER_KEY });
      expect([all.length, all.at(-1)]).to.deep.equal([1002, 'theirs.example']);
      expect(await list({ key: OTHER_KEY, after: 'd0999.example' })).to.deep.equal(['d1000.example', 'theirs.example']);
    }).timeout(60_000);

    it('are added by sending, except for invalid domains', async () => {
      const now = new Date(world.clock.now());
      const notes = await Promise.all(
        Array.from({ length: 20 }, () => noteSenderDomain(world.store, ACCOUNT, 'Sent.Example', now)),
      );
      expect(new Set(notes.map((row) => row?.domain))).to.deep.equal(new Set(['sent.example']));
      for (const domain of ['', 'localhost', '[192.0.2.1]', 'a b.example'])
        expect(await noteSenderDomain(world.store, ACCOUNT, domain, now), domain).to.equal(undefined);
      expect((await world.call('/senders/domains')).body.map(({ domain }: Asked) => domain)).to.deep.equal([
        'example.com',
        'sent.example',
      ]);
      expect(await world.store.domainKeys.many({})).to.deep.equal([]);
    });

    describe('verification mails of sender domains', () => {
      const verify = (params: object) =>
        world.call('/senders/verify-domain', { domain: 'shop.example', mailbox: 'postmaster', ...params });

      it('go to the named mailbox, with nothing that a user typed', async () => {
        expect((await verify({ domain: 'Bücher.example', mailbox: 'Web.Master' })).body).to.deep.equal({
          status: 'sent',
          domain: 'xn--bcher-kva.example',
          email: 'Web.Master@xn--bcher-kva.example',
        });
        const token = await tokenFor('Web.Master@xn--bcher-kva.example');
        const [mail] = world.senders.mailer.mails;
        expect(mail).to.include({ subject: 'Please confirm that xn--bcher-kva.example is yours' });
        expect(token).to.have.length(22);
        const stored = JSON.stringify([
          await world.store.verifications.many({}),
          await until(
            'the end of the mail',
            async () =>
              (await world.store.notices.many({})).every(({ state }) => state === 'sent') &&
              world.store.notices.many({}),
          ),
        ]);
        expect(stored).to.not.contain(token);
        expect(JSON.stringify(world.log.lines)).to.not.contain(token).and.to.not.contain('Please confirm');
      });

      it('reject mailboxes that could carry anything but a name', async () => {
        for (const mailbox of [
          '',
          ' ',
          'a b',
          '"a"',
          'a\r\nBcc: victim@example.com',
          'a\n',
          '\0',
          'a,b',
          'a>',
          '<a',
          'victim@example.com',
          'a@',
          'ä',
          '|id',
          'a%example.com',
          'a!b',
          'x'.repeat(65),
          '.a',
          'a..b',
          'a.',
        ]) {
          expect(faultOf(await verify({ mailbox })), JSON.stringify(mailbox)).to.have.property('mailbox');
        }
        expect(world.senders.mailer.mails).to.deep.equal([]);
        expect(await world.store.verifications.many({})).to.deep.equal([]);
      });

      it('are not sent to free mail providers', async () => {
        for (const domain of [
          'gmail.com',
          'GMAIL.com.',
          'yahoo.co.uk',
          'outlook.com',
          'hotmail.com',
          'web.de',
          'qq.com',
        ]) {
          expect(faultOf(await verify({ domain }))).to.deep.equal({
            domain: 'This domain belongs to a free mail provider and cannot be verified',
          });
        }
      });

      it('are not sent to a domain with a null MX, and the answer says so', async () => {
        await world.stop();
        world = await startApi({
          zone: {
            'null.example': { MX: [{ exchange: '.', priority: 0 }], A: ['192.0.2.1'] },
            'text.example': { TXT: ['hello'] },
            'mute.example': { fails: 'servfail' },
            'address.example': { AAAA: ['2001:db8::1'] },
            'mx.example': { MX: [{ exchange: 'mx.other.example', priority: 1 }] },
          },
        });
        for (const domain of ['null.example', 'text.example', 'absent.example']) {
          expect(faultOf(await verify({ domain })), domain).to.deep.equal({
            domain: 'This domain does not accept mail: it has neither a usable MX record nor an address in the DNS',
          });
        }
        expect(await world.store.verifications.many({})).to.deep.equal([]);
        for (const domain of ['address.example', 'mx.example', 'mute.example'])
          expect((await verify({ domain })).body, domain).to.include({ status: 'sent', domain });
      });

      it('are not sent to a public suffix', async () => {
        for (const domain of ['co.uk', 'github.io'])
          expect(faultOf(await verify({ domain }))).to.deep.equal({
            domain: 'This is a public suffix: others register their domains under it',
          });
      });

      it('are limited to three an hour for an address, and twenty a day in all', async () => {
        const answers = await Promise.all(
          Array.from({ length: 12 }, (_, i) => verify(i % 2 ? {} : { key: OTHER_KEY })),
        );
        expect(answers.filter(({ status }) => status === 200)).to.have.length(3);
        for (const answer of answers.filter(({ status }) => status !== 200))
          expect(faultOf(answer)).to.deep.equal({
            mailbox: 'Too many messages were requested for this address or domain: please try again later',
          });
        expect(await world.store.verifications.many({})).to.have.length(3);
        let sent = answers.filter(({ status }, i) => status === 200 && i % 2).length;
        for (let i = 0; i < 25; i++) if ((await verify({ mailbox: `person${i}` })).status === 200) sent++;
        expect(sent).to.equal(20);
      }).timeout(30_000);
    });
  });
}

describe('the key of a sender domain', () => {
  it('is a 2048-bit RSA pair, with its public half in the record', async () => {
    const made = await newKeyPair();
    const publicKey = createPublicKey({ key: Buffer.from(made.publicKey, 'base64'), format: 'der', type: 'spki' });
    expect(publicKey.asymmetricKeyDetails).to.include({ modulusLength: 2048 });
    expect(
      createPublicKey(createPrivateKey(made.privateKey)).export({ format: 'der', type: 'spki' }).toString('base64'),
    ).to.equal(made.publicKey);
  });

  it('is created once for concurrent requests, one domain at a time, and again after a failure', async () => {
    const world = await startApi();
    let [running, most, count] = [0, 0, 0];
    const open = () =>
      createDomainKeys({
        store: world.store,
        clock: world.clock,
        async newKeyPair() {
          most = Math.max(most, ++running);
          await new Promise((resolve) => setImmediate(resolve));
          running--;
          if (++count === 1) throw new Error('no luck');
          return { publicKey: `key${count}`, privateKey: 'secret' };
        },
      });
    const keys = open();
    expect(await keys.keyOf('a.example').catch((error: unknown) => String(error))).to.equal('Error: no luck');
    const pairs = await Promise.all(
      Array.from({ length: 12 }, (_, i) => keys.keyOf(['a.example', 'b.example', 'c.example'][i % 3] ?? '')),
    );
    expect(new Set(pairs.map(({ publicKey }) => publicKey))).to.have.property('size', 3);
    expect([most, count]).to.deep.equal([1, 4]);
    expect(await open().keyOf('a.example')).to.deep.equal(pairs[0]);
    const both = await Promise.all([open().keyOf('d.example'), open().keyOf('d.example')]);
    expect(both[0]).to.deep.equal(both[1]);
    await world.stop();
  });
});
