import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { sealMessage } from 'mailauth/lib/arc/index.js';
import { createTransport } from 'nodemailer';
import type { Bytes } from '../../../src/base/bytes.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { createAuthenticator } from '../../../src/inbound/verdicts/authenticate.ts';
import type { Verdicts } from '../../../src/mail/addresses/envelope.ts';
import { sealMessage as sealByHand } from '../../support/arc-seal.ts';
import { makeKey, signMessage } from '../../support/dns-keys.ts';
import { tempDir } from '../../support/temp.ts';
import type { ZoneRecords } from '../../support/zone.ts';
import { zoneResolver } from '../../support/zone.ts';

const PLAIN =
  'From: Ann <ann@example.net>\r\nTo: bob@in.example\r\nSubject: hello\r\n\r\nHello Bob.\r\nHow are you?\r\n';
const RSA = makeKey('example.net', 'rsa', 2048);
const ED = makeKey('example.net', 'ed');
const SHORT = makeKey('example.net', 'short', 768);
const OTHER = makeKey('other.example', 'rsa', 1024);
const KEYS: ZoneRecords = { ...RSA.records, ...ED.records, ...SHORT.records, ...OTHER.records };

const ENVELOPE = {
  mailFrom: 'ann@example.net',
  client: { address: '198.51.100.9', helo: 'mail.example.net', tls: null },
};
const SETTINGS = { questionsPerMessage: 60, budgetMs: 20_000, hostname: 'mx.postern.example', trustedSealers: [] };

function checkIn(records: ZoneRecords) {
  const resolver = zoneResolver(records);
  const authenticator = createAuthenticator({ resolver, settings: SETTINGS, clock: systemClock });
  return {
    resolver,
    check: (message: Bytes | string): Promise<Verdicts> =>
      authenticator.authenticate(
        typeof message === 'string' ? { kind: 'memory', bytes: Buffer.from(message, 'latin1') } : message,
        ENVELOPE,
      ),
  };
}
const { check } = checkIn(KEYS);
const dkimOf = async (message: string, records: ZoneRecords = KEYS) => (await checkIn(records).check(message)).dkim;
const VALID = { signed: true, valid: true };
const INVALID = { signed: true, valid: false };

describe('the DKIM verdict', () => {
  it('is valid for RSA and Ed25519 signatures', async () => {
    expect(await dkimOf(signMessage(PLAIN, RSA))).to.deep.equal(VALID);
    expect(await dkimOf(signMessage(PLAIN, ED))).to.deep.equal(VALID);
  });

  it('is valid for signatures of nodemailer', async () => {
    const dkim = {
      domainName: 'example.net',
      keySelector: 'rsa',
      privateKey: RSA.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    };
    const transport = createTransport({ streamTransport: true, buffer: true, newline: 'windows', dkim });
    const sent = await transport.sendMail({
      from: 'ann@example.net',
      to: 'bob@in.example',
      subject: 'Grüße',
      text: 'x\n'.repeat(100),
      html: '<p>x</p>',
    });
    if (!Buffer.isBuffer(sent.message)) throw new Error('no buffer');
    expect((await check({ kind: 'memory', bytes: sent.message })).dkim).to.deep.equal(VALID);
  });

  it('is "not signed" without a signature', async () => {
    expect(await dkimOf(PLAIN)).to.deep.equal({ signed: false, valid: false });
  });

  it('is not valid when the body or a signed field was changed', async () => {
    expect(await dkimOf(signMessage(PLAIN, RSA).replace('Hello Bob', 'Hello Rob'))).to.deep.equal(INVALID);
    expect(await dkimOf(signMessage(PLAIN, RSA).replace('Subject: hello', 'Subject: hallo'))).to.deep.equal(INVALID);
  });

  it('is not valid when l= leaves a tail that anybody may have added', async () => {
    const whole = 'Hello Bob.\r\nHow are you?\r\n'.length;
    expect(await dkimOf(signMessage(PLAIN, RSA, { length: whole }))).to.deep.equal(VALID);
    expect(await dkimOf(`${signMessage(PLAIN, RSA, { length: whole })}Buy this!\r\n`)).to.deep.equal(INVALID);
    expect(await dkimOf(signMessage(PLAIN, RSA, { length: 0 }))).to.deep.equal(INVALID);
  });

  it('is not valid for rsa-sha1', async () => {
    expect(await dkimOf(signMessage(PLAIN, RSA, { algorithm: 'rsa-sha1' }))).to.deep.equal(INVALID);
  });

  it('is not valid when i= lies outside d=', async () => {
    expect(await dkimOf(signMessage(PLAIN, RSA, { identity: 'ann@lists.example.net' }))).to.deep.equal(VALID);
    expect(await dkimOf(signMessage(PLAIN, RSA, { identity: 'ann@example.org' }))).to.deep.equal(INVALID);
    expect(await dkimOf(signMessage(PLAIN, RSA, { identity: 'ann@notexample.net' }))).to.deep.equal(INVALID);
  });

  it('is not valid when From is not signed', async () => {
    expect(await dkimOf(signMessage(PLAIN, RSA, { fields: ['to', 'subject'] }))).to.deep.equal(INVALID);
  });

  it('is not valid for a key below 1024 bits', async () => {
    expect(await dkimOf(signMessage(PLAIN, SHORT))).to.deep.equal(INVALID);
    expect(await dkimOf(signMessage(PLAIN, OTHER))).to.deep.equal(VALID);
  });

  it('is not valid once it has expired', async () => {
    expect(await dkimOf(signMessage(PLAIN, RSA, { tags: 't=1000000000; x=1000000600' }))).to.deep.equal(INVALID);
    expect(await dkimOf(signMessage(PLAIN, RSA, { tags: 't=1000000000; x=4000000000' }))).to.deep.equal(VALID);
  });

  it('is valid for selectors and domains with underscores, which exist', async () => {
    const odd = makeKey('_mail.ex_ample.net', 'k1_2026._esp', 1024);
    const message = PLAIN.replace('ann@example.net', 'ann@_mail.ex_ample.net');
    expect(await dkimOf(signMessage(message, odd), odd.records)).to.deep.equal(VALID);
    expect(await dkimOf(signMessage(message, odd, { identity: '@a_b._mail.ex_ample.net' }), odd.records)).to.deep.equal(
      VALID,
    );
    expect(
      await dkimOf(signMessage(message, odd, { length: 'Hello Bob.\r\nHow are you?\r\n'.length }), odd.records),
    ).to.deep.equal(VALID);
    expect(
      (
        await checkIn({ ...odd.records, '_dmarc.ex_ample.net': { TXT: ['v=DMARC1; p=reject'] } }).check(
          signMessage(message, odd),
        )
      ).dmarc,
    ).to.deep.equal({ result: 'pass', policy: 'reject', aligned: true });
  });

  it('of one signature is independent of exceptions caused by another', async () => {
    const good = signMessage(PLAIN, RSA);
    for (const bad of ['c=/; ', 'c=/relaxed; ', 'h=; ', 'd=..; ', 'l=1e9; ', 'b=\xff; ']) {
      const junk = `DKIM-Signature: ${bad}v=1; a=rsa-sha256; d=example.net; s=rsa; h=from; bh=AAAA; b=AAAA\r\n`;
      expect(await dkimOf(junk + good), bad).to.deep.equal(VALID);
      expect(await dkimOf(`ARC-Seal: i=1; ${bad}\r\n${junk}${good}`), bad).to.deep.equal(VALID);
    }
  });

  it('is not valid when the key is gone, revoked or unavailable', async () => {
    const name = 'rsa._domainkey.example.net';
    expect(await dkimOf(signMessage(PLAIN, RSA), {})).to.deep.equal(INVALID);
    expect(await dkimOf(signMessage(PLAIN, RSA), { [name]: { TXT: ['v=DKIM1; k=rsa; p='] } })).to.deep.equal(INVALID);
    expect(await dkimOf(signMessage(PLAIN, RSA), { [name]: { TXT: ['no key at all'] } })).to.deep.equal(INVALID);
    expect(await dkimOf(signMessage(PLAIN, RSA), { [name]: { fails: 'servfail' } })).to.deep.equal(INVALID);
  });

  it('is valid when one signature of several is', async () => {
    const broken = 'DKIM-Signature: v=1; a=rsa-sha256; d=example.net; s=rsa; h=from; bh=AAAA; b=AAAA\r\n';
    expect(await dkimOf(broken + signMessage(PLAIN, RSA))).to.deep.equal(VALID);
    expect(await dkimOf(`DKIM-Signature: nonsense\r\nDKIM-Signature:\r\n${signMessage(PLAIN, RSA)}`)).to.deep.equal(
      VALID,
    );
  });

  it('checks ten signatures at most, first those that nobody can have added in front', async () => {
    const fake = (i: number) =>
      `DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/simple; d=d${i}.example; s=s; h=from; bh=${bodyHash}; b=AAAA\r\n`;
    const bodyHash = /bh=([^;]+);/.exec(signMessage(PLAIN, RSA))?.[1] ?? '';
    const many = Array.from({ length: 500 }, (_, i) => fake(i)).join('');
    const { check, resolver } = checkIn(KEYS);
    expect((await check(many + signMessage(PLAIN, RSA))).dkim).to.deep.equal(VALID);
    expect(resolver.questions.filter(({ name }) => name.includes('_domainkey'))).to.have.length(10);
    expect(
      (await check(signMessage(many.split('\r\n').slice(0, 9).join('\r\n') + '\r\n' + PLAIN, RSA))).dkim,
    ).to.deep.equal(VALID);
  });

  it('is the same for a file, read in pieces', async () => {
    const path = join(await tempDir(), 'message');
    const large = PLAIN + 'a line that is neither long nor short\r\n'.repeat(90_000);
    await writeFile(path, signMessage(large, RSA), 'latin1');
    expect((await check({ kind: 'file', path, size: 0 })).dkim).to.deep.equal(VALID);
    await writeFile(path, `${signMessage(large, RSA)}.`, 'latin1');
    expect((await check({ kind: 'file', path, size: 0 })).dkim).to.deep.equal(INVALID);
    await writeFile(path, PLAIN);
    expect((await check({ kind: 'file', path, size: 0 })).dkim).to.deep.equal({ signed: false, valid: false });
    expect(
      (await check({ kind: 'memory', bytes: new Uint8Array(Buffer.from(signMessage(large, RSA))) })).dkim,
    ).to.deep.equal(VALID);
    expect(
      (await check({ kind: 'memory', bytes: new Uint8Array(Buffer.from(signMessage(PLAIN, RSA))) })).dkim,
    ).to.deep.equal(VALID);
  });

  it('of an unreadable message is an error, not an exception', async () => {
    const verdicts = await check({ kind: 'file', path: '/nonexistent/message', size: 0 });
    expect(verdicts.dkim).to.deep.equal({ signed: false, valid: false });
    expect(verdicts.dmarc.result).to.equal('permerror');
  });
});

describe('the DMARC verdict', () => {
  const policy = (text: string, name = '_dmarc.example.net'): ZoneRecords => ({ ...KEYS, [name]: { TXT: [text] } });
  const dmarcOf = async (message: string, records: ZoneRecords) => (await checkIn(records).check(message)).dmarc;
  const spoof = PLAIN.replace('ann@example.net', 'boss@bank.example');

  it('passes by an aligned signature', async () => {
    expect(await dmarcOf(signMessage(PLAIN, RSA), policy('v=DMARC1; p=reject'))).to.deep.equal({
      result: 'pass',
      policy: 'reject',
      aligned: true,
    });
  });

  it('passes by an aligned reverse-path', async () => {
    const records = { ...policy('v=DMARC1; p=quarantine'), 'example.net': { TXT: ['v=spf1 ip4:198.51.100.9 -all'] } };
    expect(await dmarcOf(PLAIN, records)).to.deep.equal({ result: 'pass', policy: 'quarantine', aligned: true });
  });

  it('fails when the passing domain is another', async () => {
    const records = {
      ...policy('v=DMARC1; p=reject', '_dmarc.bank.example'),
      'example.net': { TXT: ['v=spf1 ip4:198.51.100.9 -all'] },
    };
    expect(await dmarcOf(signMessage(spoof, RSA), records)).to.deep.equal({
      result: 'fail',
      policy: 'reject',
      aligned: false,
    });
  });

  it('fails on a weak signature', async () => {
    const records = policy('v=DMARC1; p=none');
    for (const options of [{ algorithm: 'rsa-sha1' as const }, { length: 5 }]) {
      expect(await dmarcOf(signMessage(PLAIN, RSA, options), records)).to.deep.equal({
        result: 'fail',
        policy: 'none',
        aligned: false,
      });
    }
  });

  it('applies strict alignment and the policy for subdomains', async () => {
    const sub = PLAIN.replace('ann@example.net', 'ann@sub.example.net');
    expect(await dmarcOf(signMessage(sub, RSA), policy('v=DMARC1; p=reject; sp=quarantine'))).to.deep.equal({
      result: 'pass',
      policy: 'quarantine',
      aligned: true,
    });
    expect(await dmarcOf(signMessage(sub, RSA), policy('v=DMARC1; p=reject; sp=quarantine; adkim=s'))).to.deep.equal({
      result: 'fail',
      policy: 'quarantine',
      aligned: false,
    });
  });

  it('is none without a policy, or without an author', async () => {
    expect(await dmarcOf(PLAIN, KEYS)).to.deep.equal({ result: 'none', policy: null, aligned: false });
    expect(await dmarcOf('To: bob@in.example\r\n\r\n', KEYS)).to.deep.equal({
      result: 'none',
      policy: null,
      aligned: false,
    });
  });

  it('is a permanent error when From does not name one domain', async () => {
    const two = PLAIN.replace('From: Ann <ann@example.net>', 'From: a@example.net, b@bank.example');
    const passing = { ...policy('v=DMARC1; p=reject'), 'example.net': { TXT: ['v=spf1 ip4:198.51.100.9 -all'] } };
    for (const odd of [
      two,
      `From: boss@bank.example\r\n${PLAIN}`,
      `From\r\n : boss@bank.example\r\n${PLAIN}`,
      `From\r\n: boss@bank.example\r\n${PLAIN}`,
      `From : boss@bank.example\r\n${PLAIN}`,
      PLAIN.replace('Ann <ann@example.net>', 'boss@bank.example <ann@example.net>'),
      PLAIN.replace('Ann', 'Ann, Bob'),
      PLAIN.replace('Ann <ann@example.net>', '=?utf-8?q?boss?='),
    ])
      expect(await dmarcOf(odd, passing), odd).to.deep.equal({ result: 'permerror', policy: null, aligned: false });
  });

  it('fails by the strictest policy of all possible authors of an ambiguous From', async () => {
    const records = {
      ...policy('v=DMARC1; p=quarantine'),
      '_dmarc.bank.example': { TXT: ['v=DMARC1; p=reject'] },
      'example.net': { TXT: ['v=spf1 ip4:198.51.100.9 -all'] },
    };
    for (const from of [
      'Ann <ann@example.net>, boss@bank.example',
      'boss@bank.example, ann@example.net',
      'boss@bank.example <ann@example.net>',
      'x <ann@example.net> <boss@bank.example>',
    ]) {
      expect(await dmarcOf(PLAIN.replace('Ann <ann@example.net>', from), records), from).to.deep.equal({
        result: 'fail',
        policy: 'reject',
        aligned: false,
      });
    }
    expect(await dmarcOf(`From: boss@bank.example\r\n${PLAIN}`, records)).to.deep.equal({
      result: 'fail',
      policy: 'reject',
      aligned: false,
    });
  });

  it('is about the envelope sender if no From names an author, and never passes for it', async () => {
    const records = policy('v=DMARC1; p=reject');
    const passing = { ...records, 'example.net': { TXT: ['v=spf1 ip4:198.51.100.9 -all'] } };
    for (const nobody of [
      'To: bob@in.example\r\n\r\n',
      ' no header\r\n',
      'From: undisclosed:;\r\n\r\n',
      'From: =?utf-8?b?PGFAZXhhbXBsZS5uZXQ+?=\r\n\r\n',
      'From: <>\r\n\r\n',
    ]) {
      expect(await dmarcOf(nobody, records), nobody).to.deep.equal({
        result: 'fail',
        policy: 'reject',
        aligned: false,
      });
      expect((await dmarcOf(nobody, passing)).result, nobody).to.be.oneOf(['none', 'permerror']);
    }
  });

  it('is a temporary error when the policy is unavailable', async () => {
    expect(await dmarcOf(PLAIN, { '_dmarc.example.net': { fails: 'timeout' } })).to.deep.equal({
      result: 'temperror',
      policy: null,
      aligned: false,
    });
  });

  it('is a temporary error, not a failure, when an aligned proof is unavailable in the DNS', async () => {
    const keyAway = { ...policy('v=DMARC1; p=reject'), 'rsa._domainkey.example.net': { fails: 'servfail' as const } };
    expect(await dmarcOf(signMessage(PLAIN, RSA), keyAway)).to.deep.equal({
      result: 'temperror',
      policy: 'reject',
      aligned: false,
    });
    const spfAway = { ...policy('v=DMARC1; p=reject'), 'example.net': { fails: { TXT: 'timeout' as const } } };
    expect(await dmarcOf(PLAIN, spfAway)).to.deep.equal({ result: 'temperror', policy: 'reject', aligned: false });
  });

  it('stays a failure when the unavailable proof would not be aligned', async () => {
    const records = {
      ...policy('v=DMARC1; p=reject', '_dmarc.bank.example'),
      'rsa._domainkey.example.net': { fails: 'servfail' as const },
      'example.net': { fails: { TXT: 'timeout' as const } },
    };
    expect(await dmarcOf(signMessage(spoof, RSA), records)).to.deep.equal({
      result: 'fail',
      policy: 'reject',
      aligned: false,
    });
  });
});

describe('the ARC verdict', () => {
  const seal = async (message: string) => {
    const privateKey = OTHER.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    const headers = await sealMessage(Buffer.from(message), {
      signingDomain: OTHER.domain,
      selector: OTHER.selector,
      privateKey,
      authResults: 'mx.other.example; spf=pass',
      cv: 'none',
    });
    return headers.toString() + message;
  };

  it('is none without a chain', async () => {
    expect((await check(PLAIN)).arc).to.deep.equal({ result: 'none' });
    expect((await check(signMessage(PLAIN, RSA))).arc).to.deep.equal({ result: 'none' });
  });

  it('passes for a sealed message', async () => {
    const sealed = await seal(signMessage(PLAIN, RSA));
    expect(await check(sealed)).to.deep.include({ arc: { result: 'pass' }, dkim: VALID });
  });

  it('fails when the message was changed after it was sealed, or the chain is broken', async () => {
    const sealed = await seal(PLAIN);
    expect((await check(sealed.replace('Hello Bob', 'Hello Rob'))).arc).to.deep.equal({ result: 'fail' });
    expect((await check(sealed.replace(/^ARC-Seal: (?:.*\r\n[ \t])*.*\r\n/m, ''))).arc).to.deep.equal({
      result: 'fail',
    });
    expect((await check(`ARC-Seal: i=1\r\n${PLAIN}`)).arc).to.deep.equal({ result: 'fail' });
  });

  it('passes for a message signature without c=, by the default of RFC 6376 and by that of the drafts and the public test suite (ams_fields_c_na)', async () => {
    const message = 'From: Ann <ann@example.net>\r\nSubject:  hello   you\r\n\r\nHello.\r\n';
    for (const form of ['simple', 'relaxed'] as const) {
      const sealed = sealByHand(message, OTHER, { form, names: ['from', 'subject'] });
      expect((await check(sealed)).arc, form).to.deep.equal({ result: 'pass' });
      expect((await check(sealed.replace('hello', 'hallo'))).arc, form).to.deep.equal({ result: 'fail' });
      expect(
        (await check(sealByHand(message, OTHER, { form, c: `${form}/${form}`, names: ['from', 'subject'] }))).arc,
        form,
      ).to.deep.equal({ result: 'pass' });
    }
    expect(
      (await check(sealByHand(message, OTHER, { form: 'relaxed', c: 'simple/simple', names: ['from', 'subject'] })))
        .arc,
    ).to.deep.equal({ result: 'fail' });
    expect(
      (await check(sealByHand(message, OTHER, { form: 'simple', c: '/', names: ['from', 'subject'] }))).arc,
    ).to.deep.equal({ result: 'fail' });
  });

  it('passes for a message signature whose h= is empty, as the public test suite has it (ams_fields_h_empty), and fails for one that leaves From out', async () => {
    const message = 'From: Ann <ann@example.net>\r\nSubject: hello\r\n\r\nHello.\r\n';
    const sealed = sealByHand(message, OTHER, { form: 'relaxed', c: 'relaxed/relaxed', names: [] });
    expect((await check(sealed)).arc).to.deep.equal({ result: 'pass' });
    expect((await check(sealed.replace('Hello.', 'Hallo.'))).arc).to.deep.equal({ result: 'fail' });
    expect(
      (await check(sealByHand(message, OTHER, { form: 'relaxed', c: 'relaxed/relaxed', names: ['subject'] }))).arc,
    ).to.deep.equal({ result: 'fail' });
  });

  it('is not taken for a DKIM signature', async () => {
    expect((await check(await seal(PLAIN))).dkim).to.deep.equal({ signed: false, valid: false });
  });
});

describe('the evidence of the verdicts', () => {
  const policy = { '_dmarc.example.net': { TXT: ['v=DMARC1; p=reject'] } };
  const evidenceOf = async (message: string, trusted: readonly string[] = []) => {
    const settings = { ...SETTINGS, trustedSealers: trusted };
    const resolver = zoneResolver({ ...KEYS, ...policy });
    const authenticator = createAuthenticator({ resolver, settings, clock: systemClock });
    const verdicts = await authenticator.authenticate(
      { kind: 'memory', bytes: Buffer.from(message, 'latin1') },
      ENVELOPE,
    );
    return { dmarc: verdicts.dmarc.result, ...verdicts.evidence };
  };
  /** Seals a message as its next set, over a chain that passed. */
  const sealAs = async (message: string, key: typeof OTHER, authResults: string, i = 1) => {
    const headers = await sealMessage(Buffer.from(message), {
      signingDomain: key.domain,
      selector: key.selector,
      privateKey: key.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
      authResults,
      cv: i === 1 ? 'none' : 'pass',
    });
    return headers.toString() + message;
  };
  const SAW_PASS = 'mx.other.example; dkim=pass header.d=example.net; dmarc=pass header.from=example.net';
  /** Forwarded: the signature broke on the way, and the envelope sender is the forwarder's. */
  const forwarded = signMessage(PLAIN, RSA).replace('hello', '[list] hello');

  it('names the domain of SPF and each signature, with its result and whether it is aligned with the author', async () => {
    const message = signMessage(signMessage(signMessage(PLAIN, RSA), OTHER), ED);
    const { spf, dkim } = await evidenceOf(message);
    expect(spf).to.equal('example.net');
    expect(
      dkim?.toSorted((a, b) => a.selector.localeCompare(b.selector) || a.domain.localeCompare(b.domain)),
    ).to.deep.equal([
      { domain: 'example.net', selector: 'ed', result: 'pass', aligned: true },
      { domain: 'example.net', selector: 'rsa', result: 'pass', aligned: true },
      { domain: 'other.example', selector: 'rsa', result: 'pass', aligned: false },
    ]);
    const broken = await evidenceOf(message.replace('Hello Bob', 'Hello Rob'));
    expect(broken.dkim?.map(({ result, aligned }) => [result, aligned])).to.deep.equal(
      Array.from({ length: 3 }, () => ['fail', false]),
    );
  });

  it('trusts a configured sealer that saw DMARC pass, and no other sealer', async () => {
    const sealed = await sealAs(forwarded, OTHER, SAW_PASS);
    expect(await evidenceOf(sealed, ['other.example'])).to.deep.include({
      dmarc: 'fail',
      arc: { sealers: ['other.example'], trusted: true },
    });
    for (const clear of [
      'mx.other.example 1; dkim=pass header.d=a.example; dkim=fail header.d=b.example; dmarc=pass (p=none) action=none header.from=example.net',
      'mx.other.example;\r\n\tspf=pass smtp.mailfrom="a; b"@x.example;\r\n dmarc = pass (a (nested\\) one))\r\n\theader.from="Example.NET"; arc=none',
      'mx.other.example; DMARC=Pass policy.dmarc=none header.from=example.net',
    ])
      expect((await evidenceOf(await sealAs(forwarded, OTHER, clear), ['other.example'])).arc?.trusted, clear).to.equal(
        true,
      );
    expect((await evidenceOf(sealed)).arc).to.deep.equal({ sealers: ['other.example'], trusted: false });
    expect((await evidenceOf(sealed, ['example.net', 'ther.example'])).arc?.trusted).to.equal(false);
  });

  it('does not trust a configured sealer that saw DMARC fail, saw another author, or did not check', async () => {
    for (const seen of [
      'mx.other.example; dmarc=fail header.from=example.net',
      'mx.other.example; dmarc=pass header.from=evil.example',
      'mx.other.example; spf=pass smtp.mailfrom=example.net',
      'mx.other.example (dmarc=pass header.from=example.net); spf=pass',
      'mx.other.example; dmarc=pass',
      // Two results: a sender slipped one in, before or behind what the server found.
      'mx.other.example; dmarc=fail header.from=example.net; dmarc=pass header.from=example.net',
      'mx.other.example; dmarc=pass header.from=example.net; dmarc=fail header.from=example.net',
      'mx.other.example; dmarc=pass header.from=example.net; dmarc=pass header.from=example.net',
      'mx.other.example; spf=pass smtp.mailfrom=x;dmarc=pass header.from=example.net; DMARC/1 = fail',
      'mx.other.example; spf=pass dmarc=fail; dmarc=pass header.from=example.net',
      'mx.other.example; spf=pass dmarc=pass header.from=example.net',
      'mx.other.example; dmarc=pass header.from=example.net header.from=evil.example',
      'mx.other.example; dmarc=pass header.from=evil.example header . from = example.net',
      'mx.other.example; dmarc=passed header.from=example.net',
      // Comments, quoted strings and folds.
      'mx.other.example; dmarc=fail (x) (dmarc=pass header.from=example.net)',
      'mx.other.example; dmarc=fail (\\); dmarc=pass header.from=example.net',
      'mx.other.example; dmarc=pass header.from=example.net (it goes on; dmarc=fail',
      'mx.other.example; spf=pass smtp.mailfrom="x; dmarc=pass header.from=example.net"',
      'mx.other.example; dmarc=pass header.from=example.net reason="x; dmarc=fail',
      'mx.other.example; dmarc=pass header.from="x example.net"',
      'mx.other.example;\r\n\tdmarc=fail;\r\n dmarc=pass header.from=example.net',
    ])
      expect((await evidenceOf(await sealAs(forwarded, OTHER, seen), ['other.example'])).arc?.trusted, seen).to.equal(
        false,
      );
  });

  it('does not trust messages that were changed after the seal, or sealed again by an unknown sealer', async () => {
    const sealed = await sealAs(forwarded, OTHER, SAW_PASS);
    expect((await evidenceOf(sealed.replace('Hello Bob', 'Hello Rob'), ['other.example'])).arc).to.deep.equal({
      sealers: [],
      trusted: false,
    });
    const again = await sealAs(sealed, RSA, 'mx.stranger.example; dmarc=pass header.from=example.net', 2);
    expect((await evidenceOf(again, ['other.example'])).arc).to.deep.equal({
      sealers: ['example.net', 'other.example'],
      trusted: false,
    });
    // With the stranger trusted, too, the first of them says what it saw.
    expect((await evidenceOf(again, ['other.example', 'example.net'])).arc?.trusted).to.equal(true);
  });

  it('does not trust a seal for a message with an ambiguous author', async () => {
    const two = forwarded.replace('From: Ann', 'From: Boss <ceo@victim.example>\r\nFrom: Ann');
    const sealed = await sealAs(two, OTHER, SAW_PASS);
    expect((await evidenceOf(sealed, ['other.example'])).arc?.trusted).to.equal(false);
  });
});

describe('hostile header sections', () => {
  const signed = signMessage(PLAIN, RSA);
  const cases: ReadonlyMap<string, string> = new Map([
    ['100,000 fields', `${'X: y\r\n'.repeat(100_000)}${signed}`],
    ['100,000 continuation lines', signed.replace('\r\n', `\r\n${' \t\r\n'.repeat(100_000)}`)],
    ['one field of a megabyte', `X: ${'y'.repeat(1_000_000)}\r\n${signed}`],
    ['no end of the header', 'X: y\r\n'.repeat(60_000)],
    ['10,000 addresses in From', `From: ${'a@b.example, '.repeat(10_000)}c@d.example\r\nTo: x\r\n\r\n`],
    ['nested comments and quotes in From', `From: ${'('.repeat(50_000)}${'"'.repeat(50_001)}<a@b>\r\n\r\n`],
    ['a signature with 20,000 names in h=', signed.replace('h=from', `h=from${':x'.repeat(20_000)}`)],
    ['a signature of empty tags', `DKIM-Signature: ${';'.repeat(8000)}\r\n${PLAIN}`],
    [
      'tags that are members of every object',
      `DKIM-Signature: __proto__=1; constructor=2; v=1; a=rsa-sha256; d=toString; s=hasOwnProperty; h=from; bh=x; b=y\r\n${PLAIN}`,
    ],
    [
      'ARC sets without end',
      Array.from(
        { length: 300 },
        (_, i) => `ARC-Seal: i=${i}; cv=pass; a=rsa-sha256; d=d${i}.example; s=s; b=x\r\n`,
      ).join('') + PLAIN,
    ],
    ['bytes of no meaning', Buffer.from(Array.from({ length: 20_000 }, (_, i) => (i * 7919) % 256)).toString('latin1')],
    ['nothing', ''],
    ['an empty line', '\r\n'],
    ['a body of one endless line', `${signed}${'x '.repeat(500_000)}`],
  ]);

  for (const [name, message] of cases) {
    it(`get verdicts: ${name}`, async () => {
      const verdicts = await check(message);
      expect(verdicts.dkim.valid).to.equal(false);
      expect(verdicts.dmarc.result).to.be.oneOf(['none', 'permerror', 'fail']);
      expect(verdicts.arc.result).to.be.oneOf(['none', 'fail']);
    }).timeout(5000);
  }
});
