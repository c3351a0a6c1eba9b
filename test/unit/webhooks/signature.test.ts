import { createHmac } from 'node:crypto';
import { expect } from 'chai';
import { Webhook } from 'standardwebhooks';
import {
  mandrillSignature,
  runningMandrillSignature,
  runningStandardSignature,
  standardSignature,
  toSigningSecret,
} from '../../../src/webhooks/signing.ts';

const KEY = 'kJ8vQ2xLr0cYw5nTt7uZ1aBdEfGhIjKm';
const URL = 'https://user:pass@example.com/hook/?a=1&b=2';

describe('signatures of posts', () => {
  it('sign the empty list that tests a URL with the value consumers know', () => {
    expect(mandrillSignature('test-webhook', 'https://example.com/hook', { mandrill_events: '[]' })).to.equal(
      'q1iFfhUSFU7Unr1lnKqKA1TGkbM=',
    );
  });

  it('sign the parameters by name, in any order', () => {
    const expected = createHmac('sha1', KEY).update(`${URL}a1b2mandrill_events[]`).digest('base64');
    expect(mandrillSignature(KEY, URL, { mandrill_events: '[]', b: '2', a: '1' })).to.equal(expected);
    expect(mandrillSignature(KEY, URL, { a: '1', b: '2', mandrill_events: '[]' })).to.equal(expected);
  });

  it('sign decoded values as UTF-8', () => {
    expect(mandrillSignature(KEY, URL, { x: 'Grüße 🎉' })).to.equal(
      createHmac('sha1', KEY)
        .update(Buffer.from(`${URL}xGrüße 🎉`, 'utf8'))
        .digest('base64'),
    );
  });

  it('are the same for a value in pieces', () => {
    const running = runningMandrillSignature(KEY, URL, 'mandrill_events');
    running.update(Buffer.from('[{"a"'));
    running.update(Buffer.from(':1}]'));
    expect(running.digest()).to.equal(mandrillSignature(KEY, URL, { mandrill_events: '[{"a":1}]' }));
  });

  it('are valid for the Standard Webhooks library', () => {
    const body = Buffer.from('mandrill_events=%5B%5D');
    const seconds = Math.floor(Date.now() / 1000);
    const headers = {
      'webhook-id': 'msg-1',
      'webhook-timestamp': String(seconds),
      'webhook-signature': standardSignature([KEY], 'msg-1', seconds, body),
    };
    const webhook = new Webhook(toSigningSecret(KEY));
    expect(() => webhook.verify(body, headers, { jsonParse: false })).not.to.throw();
    expect(() => webhook.verify(Buffer.from('mandrill_events=%5B1%5D'), headers, { jsonParse: false })).to.throw(
      'No matching signature',
    );
  });

  it('are valid with the old key and with the new one during a rotation', () => {
    const body = Buffer.from('x');
    const seconds = Math.floor(Date.now() / 1000);
    const running = runningStandardSignature(['new-key-new-key-new-key-new-key-', KEY], 'msg-1', seconds);
    running.update(body);
    const headers = {
      'webhook-id': 'msg-1',
      'webhook-timestamp': String(seconds),
      'webhook-signature': running.digest(),
    };
    for (const key of ['new-key-new-key-new-key-new-key-', KEY]) {
      expect(() => new Webhook(toSigningSecret(key)).verify(body, headers, { jsonParse: false }), key).not.to.throw();
    }
    expect(() =>
      new Webhook(toSigningSecret('another-key-another-key-another-')).verify(body, headers, { jsonParse: false }),
    ).to.throw();
  });

  it('use the key format of Standard Webhooks libraries', () => {
    expect(toSigningSecret('abc')).to.equal('whsec_YWJj');
  });
});
