import { expect } from 'chai';
import { postern } from '../support/command.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';

// A 550 is final: the sender's server returns the mail. So a daemon looks at the store again before it answers one.

for (const threads of ['0', '2'])
  describe(`mail to a route that the daemon has not read yet, with ${threads} SMTP threads`, () => {
    let running: TestDaemon;
    before(async () => {
      // By itself it would look in an hour.
      running = await startDaemon({ POSTERN_INBOUND__REFRESH_MS: '3600000', POSTERN_SMTP__THREADS: threads });
    });
    after(() => running.stop());

    const send = (to: string) => sendMail(running.smtp, { from: 'ada@example.org', to }, message('early'));
    const type = async (...args: string[]) =>
      expect((await postern(args, { POSTERN_DATA_DIR: running.dir })).code, args.join(' ')).to.equal(0);

    it('is accepted as soon as the command line has added the domain and the route', async () => {
      expect(await send('box@in.test')).to.match(/^550 5\.7\.1/);
      await type('domain', 'add', 'in.test');
      expect(await send('box@in.test')).to.match(/^550 5\.1\.1/);
      await type('route', 'add', 'in.test', 'box', 'pull:');
      expect(await send('box@in.test')).to.match(/^250/);
    });

    it('is refused as soon as the domain is removed and another mailbox is tried', async () => {
      await type('domain', 'remove', 'in.test');
      expect(await send('other@in.test')).to.match(/^550/);
      expect(await send('box@in.test')).to.match(/^550/);
    });
  });
