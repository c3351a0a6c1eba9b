import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { makeKey, signMessage } from '../support/dns-keys.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const KEY = makeKey('attacker.test', 'k', 1024);
const HIDDEN = `=?utf-8?b?${Buffer.from('<ceo@victim.example>').toString('base64')}?=`;

describe('the author in the payload', () => {
  let postern: TestDaemon;
  let hook: Receiver;
  let zone: Zone;

  before(async () => {
    hook = await startReceiver();
    zone = await startZone({
      'attacker.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'] },
      '_dmarc.attacker.test': { TXT: ['v=DMARC1; p=none'] },
      ...KEY.records,
      'victim.example': { TXT: ['v=spf1 -all'] },
      '_dmarc.victim.example': { TXT: ['v=DMARC1; p=reject'] },
    });
    postern = await startDaemon({ POSTERN_DNS__SERVERS: zone.server, POSTERN_DNS__TIMEOUT_MS: '20000' });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    await postern.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
  });
  after(async () => {
    await postern.stop();
    await zone.stop();
    await hook.stop();
  });

  /** What the webhook gets of a message that the attacker may send and signs. */
  async function received(header: string, mailFrom = 'evil@attacker.test') {
    const before = postsOf(hook.requests).length;
    const raw = signMessage(`${header}Subject: x\r\n\r\nPay at once.\r\n`, KEY, { fields: ['from', 'subject'] });
    expect(await sendMail(postern.smtp, { from: mailFrom, to: 'desk@in.test' }, raw)).to.match(/^250 /);
    const [post] = await until(
      'the post',
      () => postsOf(hook.requests).length > before && postsOf(hook.requests).slice(before),
    );
    return eventsOf(post as never)[0].msg;
  }

  it('is the address that DMARC passed', async () => {
    const msg = await received('From: Eve <evil@attacker.test>\r\n');
    expect(msg).to.deep.include({
      from_email: 'evil@attacker.test',
      from_name: 'Eve',
      dkim: { signed: true, valid: true },
      dmarc: { result: 'pass', policy: 'none', aligned: true },
    });
  });

  it('is never an address that an encoded word decodes to', async () => {
    expect(await received(`From: ${HIDDEN}:<evil@attacker.test>\r\n`)).to.deep.include({
      from_email: 'evil@attacker.test',
      dmarc: { result: 'permerror', policy: null, aligned: false },
    });
    expect(await received(`From: ${HIDDEN}\r\n`)).to.deep.include({
      from_email: 'evil@attacker.test',
      dmarc: { result: 'permerror', policy: null, aligned: false },
    });
    expect(await received(`From: ${HIDDEN} <evil@attacker.test>\r\n`)).to.deep.include({
      from_email: 'evil@attacker.test',
      from_name: '<ceo@victim.example>',
      dmarc: { result: 'pass', policy: 'none', aligned: true },
    });
    expect(
      await received(`From: evil@attacker.test\r\nTo: ${HIDDEN}, Bob <bob@in.test>\r\nCc: ${HIDDEN}:;\r\n`),
    ).to.deep.include({ to: [['bob@in.test', 'Bob']], cc: [] });
  });

  for (const from of [
    'ceo@victim.example',
    'ceo@victim.example, evil@attacker.test',
    'ceo@victim.example <evil@attacker.test>',
    'evil@attacker.test\r\nFrom: ceo@victim.example',
    'ceo@victim.example\r\nFrom: evil@attacker.test',
    'Both: ceo@victim.example, evil@attacker.test;',
    '<evil@attacker.test> <ceo@victim.example>',
    '"x <evil@attacker.test>, ceo@victim.example',
    'ceo(@attacker.test)@victim.example',
  ]) {
    it(`fails DMARC for a forged sender: From: ${JSON.stringify(from)}`, async () => {
      expect((await received(`From: ${from}\r\n`)).dmarc).to.deep.equal({
        result: 'fail',
        policy: 'reject',
        aligned: false,
      });
    });
  }

  it('is the address that DMARC judged if the message names no author, or its header is too large to parse', async () => {
    expect(await received('To: desk@in.test\r\n', 'ceo@victim.example')).to.deep.include({
      from_email: 'ceo@victim.example',
      dmarc: { result: 'fail', policy: 'reject', aligned: false },
    });
    const endless = await received(`${'X: y\r\n'.repeat(1500)}From: Boss <ceo@victim.example>\r\n`);
    expect(endless).to.have.property('parse_error');
    expect(endless).to.deep.include({
      from_email: 'ceo@victim.example',
      from_name: 'Boss',
      dmarc: { result: 'fail', policy: 'reject', aligned: false },
    });
  });

  it('is not forged by an invalid signature in front of the message', async () => {
    const junk = 'DKIM-Signature: v=1; a=rsa-sha256; c=/; d=victim.example; s=k; h=from; bh=AAAA; b=AAAA\r\n';
    expect(await received(`${junk}From: ceo@victim.example\r\n`)).to.deep.include({
      from_email: 'ceo@victim.example',
      dmarc: { result: 'fail', policy: 'reject', aligned: false },
    });
    expect(await received(`${junk}From: evil@attacker.test\r\n`)).to.deep.include({
      dkim: { signed: true, valid: true },
      dmarc: { result: 'pass', policy: 'none', aligned: true },
    });
  });
});
