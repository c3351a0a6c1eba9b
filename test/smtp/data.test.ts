import { expect } from 'chai';
import { openData, sendMessage, sha256, startListener, type Started } from '../support/smtp.ts';

describe('DATA', () => {
  let started: Started;
  beforeEach(async () => { started = await startListener(); });
  afterEach(() => started.stop());

  it('takes a message and says under which id', async () => {
    const client = await started.client();
    expect(await sendMessage(client, 'Subject: x\r\n\r\nhello')).to.equal('250 2.0.0 OK: queued as message-1');
    expect(started.below.taken[0]?.bytes.toString()).to.equal('Subject: x\r\n\r\nhello\r\n');
  });
});
