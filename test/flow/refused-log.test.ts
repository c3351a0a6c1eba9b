import { connect } from 'node:net';
import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { createClient } from '../support/smtp.ts';

describe('the log of a refusal', () => {
  let running: TestDaemon;
  let hook: Receiver;
  let account: string;

  before(async () => {
    hook = await startReceiver();
    running = await startDaemon({ POSTERN_SMTP__MAX_MESSAGE_BYTES: '2048', POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0' });
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'box-*', url: hook.url });
    account = String(running.log.of('api.call').at(-1)?.fields['account']);
  });
  after(async () => {
    await running.stop();
    await hook.stop();
  });

  /** Says the lines to a listener and answers what the log said of the last refusal. */
  async function refused(
    address: { readonly host: string; readonly port: number },
    ...lines: readonly string[]
  ): Promise<Readonly<Record<string, unknown>>> {
    const client = createClient(connect(address));
    await client.reply();
    for (const line of ['EHLO client.test', ...lines]) await client.say(line);
    client.destroy();
    return running.log.of('smtp.refused').at(-1)?.fields ?? {};
  }

  it('names sender, recipient and account for a mailbox without a route', async () => {
    expect(await refused(running.smtp, 'MAIL FROM:<ada@sender.test>', 'RCPT TO:<Nobody@IN.test>')).to.include({
      mail_from: 'ada@sender.test',
      recipient: 'Nobody@IN.test',
      account,
    });
  });

  it('names them for a message refused at its end, with every recipient', async () => {
    const fields = await refused(
      running.smtp,
      'MAIL FROM:<>',
      'RCPT TO:<box-1@in.test>',
      'RCPT TO:<box-2@in.test>',
      'DATA',
      `Subject: x\r\n\r\n${'x'.repeat(70)}\r\n${'y\r\n'.repeat(1000)}.`,
    );
    expect(fields['reply']).to.match(/^552 /);
    expect(fields).to.include({ command: 'DATA', mail_from: '', recipient: 'box-1@in.test box-2@in.test', account });
  });

  it('has no account for an unknown domain, and no recipient before RCPT', async () => {
    const relay = await refused(running.smtp, 'MAIL FROM:<ada@sender.test>', 'RCPT TO:<x@elsewhere.test>');
    expect(relay).to.include({ mail_from: 'ada@sender.test', recipient: 'x@elsewhere.test', account: undefined });
    expect(await refused(running.smtp, 'MAIL FROM:<ada@sender.test> SIZE=999999')).to.include({
      mail_from: 'ada@sender.test',
      recipient: undefined,
      account: undefined,
    });
    expect(await refused(running.smtp, 'RCPT TO:')).to.include({
      mail_from: undefined,
      recipient: undefined,
    });
  });

  it('names the authenticated account at submission', async () => {
    const [address] = running.submission;
    if (!address) throw new Error('no listener for submission');
    const login = Buffer.from(`\0any\0${running.key}`).toString('base64');
    expect(
      await refused(address, `AUTH PLAIN ${login}`, 'MAIL FROM:<ada@sender.test>', 'RCPT TO:<x@[192.0.2.1]>'),
    ).to.include({ mail_from: 'ada@sender.test', recipient: 'x@[192.0.2.1]', account });
  });
});
