import { expect } from 'chai';
import { createInspector } from '../../../src/inbound/inspection.ts';
import { createTestLog } from '../../support/log.ts';

describe('parsing a message for route conditions', () => {
  it('gives no facts when it fails, and logs the message', async () => {
    const log = createTestLog();
    const inspector = createInspector({ run: () => Promise.reject(new Error('the thread ended')), log });
    const envelope = { mailFrom: 'a@b.test', rcptTo: ['c@d.test'] } as never;
    const body = { kind: 'memory', bytes: Buffer.from('Subject: x\r\n\r\n') } as const;
    expect(await inspector.inspect({ id: 'm1', envelope, body }, true)).to.deep.equal({
      content: null,
      verdicts: null,
      auth: null,
    });
    expect(log.of('message.parse_failed').map(({ fields }) => fields)).to.deep.equal([
      {
        message: 'm1',
        reason: 'the conditions of its routes could not be checked',
        error: new Error('the thread ended'),
      },
    ]);
  });
});
