import { expect } from 'chai';
import { keyHash } from '../../../src/store/rows/accounts.ts';
import type { ActivityFilter } from '../../../src/store/rows/exports.ts';
import { drivers } from '../../support/database.ts';
import {
  type ExportWorld,
  messageRow,
  openExportWorld,
  putMessage,
  rejectRow,
  THEIRS,
  whitelistRow,
} from '../../support/export-world.ts';

const ANY: ActivityFilter = { from: null, before: null, tags: null, senders: null, states: null, apiKeys: null };

for (const driver of drivers)
  describe(`the contents of an export, ${driver.name}`, () => {
    let world: ExportWorld;
    beforeEach(async () => {
      world = await openExportWorld(await driver.open({ crowded: true }));
    });
    afterEach(() => world.close());

    const activity = (filter: Partial<ActivityFilter> = {}, host = {}) =>
      world.exported({ type: 'activity', filter: { ...ANY, ...filter } }, host);
    const subjects = async (filter: Partial<ActivityFilter>) => (await activity(filter)).map((line) => line[3]);

    describe('the archive', () => {
      it('of rejects is one file with the documented columns', async () => {
        const at = new Date('2026-01-04T11:12:13.999Z');
        await world.store.rejects.insert(rejectRow('b@example.org', { lastEventAt: at }));
        await world.store.rejects.insert(
          rejectRow('a@example.org', { reason: 'custom', detail: null, expiresAt: null }),
        );
        const id = await world.start();
        await world.task().run();
        const { name, text, time, lines } = await world.contents(id);
        expect(name).to.equal('rejects.csv');
        expect(time).to.deep.equal((await world.job(id)).createdAt);
        expect(text.endsWith('\r\n')).to.equal(true);
        expect(lines).to.deep.equal([
          ['email', 'reason', 'detail', 'created_at', 'expires_at', 'last_event_at', 'expires_at'],
          ['a@example.org', 'custom', '', '2026-01-04 10:00:00', '', '2026-01-04 10:00:00', ''],
          [
            'b@example.org',
            'hard-bounce',
            'smtp;550 no such user',
            '2026-01-04 10:00:00',
            '2026-01-11 10:00:00',
            '2026-01-04 11:12:13',
            '2026-01-11 10:00:00',
          ],
        ]);
      });

      it('of rejects includes those of subaccounts, and neither expired nor removed ones', async () => {
        await world.store.rejects.insert(rejectRow('a@example.org'));
        await world.store.rejects.insert(rejectRow('a@example.org', { subaccount: 'shop' }));
        await world.store.rejects.insert(rejectRow('b@example.org', { expired: true }));
        await world.store.rejects.insert(rejectRow('c@example.org', { expiresAt: new Date(world.clock.now()) }));
        await world.store.rejects.insert(rejectRow('d@example.org', { removed: true }));
        expect((await world.exported({})).map(([email]) => email)).to.deep.equal(['a@example.org', 'a@example.org']);
      });

      it('of the whitelist is one file with the documented columns', async () => {
        await world.store.whitelists.insert(whitelistRow('boss@example.org', { detail: 'always' }));
        await world.store.whitelists.insert(whitelistRow('gone@example.org', { removed: true }));
        const id = await world.start({ type: 'whitelist' });
        await world.task().run();
        const { name, lines } = await world.contents(id);
        expect(name).to.equal('whitelist.csv');
        expect(lines).to.deep.equal([
          ['email', 'detail', 'created_at'],
          ['boss@example.org', 'always', '2026-01-04 10:00:00'],
        ]);
      });

      it('of the activity is one file with the documented columns, and those of the configured metadata', async () => {
        await putMessage(
          world.store,
          messageRow({
            tags: ['welcome', 'vip'],
            state: 'bounced',
            opens: 2,
            clicks: 1,
            diag: 'smtp;550 gone',
            bounceDescription: 'bad_mailbox',
            metadata: { order: '17' },
          }),
        );
        await putMessage(
          world.store,
          messageRow({
            createdAt: new Date('2026-01-04T10:00:01Z'),
            state: 'soft-bounced',
            bounceDescription: 'mailbox_full',
          }),
        );
        const id = await world.start({ type: 'activity', filter: ANY });
        await world.task({ metadataFields: ['order', 'constructor'] }).run();
        const { name, lines } = await world.contents(id);
        expect(name).to.equal('activity.csv');
        expect(lines).to.deep.equal([
          [
            'Date',
            'Email Address',
            'Sender',
            'Subject',
            'Status',
            'Tags',
            'Opens',
            'Clicks',
            'Bounce Detail',
            'order',
            'constructor',
          ],
          [
            '2026-01-04 10:00:00',
            'ann@example.org',
            'news@example.com',
            'Hello',
            'bounced',
            'welcome,vip',
            '2',
            '1',
            'smtp;550 gone',
            '17',
            '',
          ],
          [
            '2026-01-04 10:00:01',
            'ann@example.org',
            'news@example.com',
            'Hello',
            'soft-bounced',
            '',
            '0',
            '0',
            'mailbox_full',
            '',
            '',
          ],
        ]);
      });

      it('of the activity has one column for each metadata field of the account', async () => {
        const account = messageRow().account;
        for (const [owner, name] of [
          [account, 'order'],
          [account, 'basket'],
          ['Somebody', 'theirs'],
        ] as const) {
          const createdAt = new Date(`2026-01-04T10:00:0${name.length - 5}Z`);
          await world.store.metadataFields.insert({
            id: `${owner} ${name}`,
            account: owner,
            name,
            viewTemplate: null,
            createdAt,
          });
        }
        await putMessage(world.store, messageRow({ metadata: { order: '17', basket: 'b1', theirs: 'x' } }));
        const id = await world.start({ type: 'activity', filter: ANY });
        await world.task({ metadataFields: ['order'] }).run();
        const { lines } = await world.contents(id);
        expect(lines.map((line) => line.slice(9))).to.deep.equal([
          ['order', 'basket'],
          ['17', 'b1'],
        ]);
      });

      it('without rows has only the header', async () => {
        for (const type of ['reject', 'whitelist', 'activity'] as const)
          expect(await world.exported({ type })).to.deep.equal([]);
      });

      const hostile = [
        "=cmd|' /C calc'!A0",
        '+1+1',
        '-2+3',
        '@SUM(1+1)',
        '\t=1+1',
        '\r=1+1',
        '\n=1+1',
        '＝1+1',
        '＋1',
        '－1',
        '＠1',
        '"=1+1',
        'a,"b"',
        'line\r\nbreak',
        'lone\rreturn',
        '", "=1+1',
        'Grüße ✓ 日本 \u{1f4ee}',
        '\ufeffbom',
        "'",
        '""',
        ' =1+1',
        'x'.repeat(5000),
        ',,,',
        '0',
        '-',
        '',
      ];
      const putHostile = async () => {
        for (const [n, subject] of hostile.entries())
          await putMessage(world.store, messageRow({ subject, createdAt: new Date(Date.UTC(2026, 0, 1) + n) }));
      };

      it('has cells that are read back unchanged, with formula-like ones in quotation marks', async () => {
        await putHostile();
        await world.store.rejects.insert(rejectRow('+tag@example.org', { detail: '=1' }));
        expect((await activity()).map((line) => line[3])).to.deep.equal(hostile);
        const id = await world.start({});
        await world.task().run();
        const { text, lines } = await world.contents(id);
        expect(lines[1]?.slice(0, 3)).to.deep.equal(['+tag@example.org', 'hard-bounce', '=1']);
        expect(text).to.contain('\r\n"+tag@example.org",hard-bounce,"=1",');
      });

      it('has cells that no spreadsheet reads as a formula, on request, except for addresses, which stay unchanged', async () => {
        await putHostile();
        const cells = (await world.exported({ type: 'activity' }, { formulas: 'escape' })).map(
          (line) => line[3] ?? '?',
        );
        for (const [n, cell] of cells.entries()) {
          expect(cell, JSON.stringify(hostile[n])).to.not.match(/^[=+\-@\t\r\n\0＝＋－＠]/);
          expect([hostile[n], `'${hostile[n]}`], 'nothing else changed').to.include(cell);
        }
        expect(cells).to.have.length(hostile.length);
        await world.store.rejects.insert(rejectRow('+tag@example.org', { detail: '=1' }));
        expect((await world.exported({}, { formulas: 'escape' }))[0]?.slice(0, 3)).to.deep.equal([
          '+tag@example.org',
          'hard-bounce',
          "'=1",
        ]);
        await world.store.whitelists.insert(whitelistRow('-dash@example.org'));
        expect((await world.exported({ type: 'whitelist' }, { formulas: 'escape' }))[0]?.[0]).to.equal(
          '-dash@example.org',
        );
        await putMessage(
          world.store,
          messageRow({ subject: 'last', email: '+a@example.org', sender: '=b@example.com' }),
        );
        expect(
          (await world.exported({ type: 'activity' }, { formulas: 'escape' }))
            .find((line) => line[3] === 'last')
            ?.slice(1, 3),
        ).to.deep.equal(['+a@example.org', '=b@example.com']);
      });

      it('contains only data of its own account', async () => {
        for (const account of [undefined, THEIRS]) {
          const own = account === undefined ? {} : { account };
          const name = account ? 'theirs' : 'mine';
          await world.store.rejects.insert(rejectRow(`${name}@example.org`, own));
          await world.store.whitelists.insert(whitelistRow(`${name}@example.org`, own));
          await putMessage(world.store, messageRow({ ...own, subject: name, tags: ['both'] }));
        }
        expect((await world.exported({})).map(([email]) => email)).to.deep.equal(['mine@example.org']);
        expect((await world.exported({ type: 'whitelist' })).map(([email]) => email)).to.deep.equal([
          'mine@example.org',
        ]);
        expect(await subjects({})).to.deep.equal(['mine']);
        expect(await subjects({ tags: ['both'] })).to.deep.equal(['mine']);
        expect((await world.exported({ account: THEIRS })).map(([email]) => email)).to.deep.equal([
          'theirs@example.org',
        ]);
      });

      it('contains every row once, for any pages and many equal times', async () => {
        const count = 1203; // six full pages and a part; the first 700 messages are of one moment
        const wait: Promise<unknown>[] = [];
        for (let n = 0; n < count; n++) {
          const name = String(n).padStart(5, '0');
          wait.push(world.store.rejects.insert(rejectRow(`u${name}@example.org`)));
          wait.push(
            putMessage(
              world.store,
              messageRow({
                subject: name,
                tags: n % 2 === 0 ? ['even'] : ['odd'],
                createdAt: new Date(Date.UTC(2026, 0, 1) + Math.max(0, n - 700)),
              }),
            ),
          );
          if (wait.length > 50) await Promise.all(wait.splice(0));
        }
        await Promise.all(wait);
        const names = Array.from({ length: count }, (_, n) => String(n).padStart(5, '0'));
        expect((await world.exported({})).map(([email]) => email)).to.deep.equal(
          names.map((name) => `u${name}@example.org`),
        );
        expect((await subjects({})).toSorted()).to.deep.equal(names);
        expect((await subjects({ tags: ['even', 'odd'] })).toSorted()).to.deep.equal(names);
        expect(await subjects({ tags: ['even', 'none'] })).to.have.length(602);
      }).timeout(60_000);
    });

    describe('the filters of the activity export', () => {
      const at = (day: number) => new Date(Date.UTC(2026, 0, day, 10));
      beforeEach(async () => {
        await putMessage(
          world.store,
          messageRow({
            subject: 'first',
            createdAt: at(1),
            sender: 'news@example.com',
            tags: ['a', 'b'],
            state: 'sent',
            apiKey: keyHash('one'),
          }),
        );
        await putMessage(
          world.store,
          messageRow({
            subject: 'second',
            createdAt: at(2),
            sender: 'shop@example.com',
            tags: ['b'],
            state: 'bounced',
            apiKey: keyHash('two'),
          }),
        );
        await putMessage(
          world.store,
          messageRow({
            subject: 'third',
            createdAt: at(3),
            sender: 'news@example.com',
            tags: [],
            state: 'spam',
            apiKey: null,
          }),
        );
        await putMessage(
          world.store,
          messageRow({
            subject: 'fourth',
            createdAt: at(4),
            sender: 'other@example.com',
            tags: ['c'],
            state: 'sent',
            apiKey: keyHash('one'),
          }),
        );
      });

      it('match everything when there are none', async () => {
        expect(await subjects({})).to.deep.equal(['first', 'second', 'third', 'fourth']);
      });

      it('match a time range, the start included', async () => {
        expect(await subjects({ from: at(2) })).to.deep.equal(['second', 'third', 'fourth']);
        expect(await subjects({ before: at(3) })).to.deep.equal(['first', 'second']);
        expect(await subjects({ from: at(2), before: at(4) })).to.deep.equal(['second', 'third']);
        expect(await subjects({ from: at(9) })).to.deep.equal([]);
      });

      it('match messages with any of the tags, each once, the oldest first', async () => {
        expect(await subjects({ tags: ['a'] })).to.deep.equal(['first']);
        expect(await subjects({ tags: ['c', 'b', 'a', 'b'] })).to.deep.equal(['first', 'second', 'fourth']);
        expect(await subjects({ tags: ['unheard of'] })).to.deep.equal([]);
        expect(
          await subjects({ tags: ['b', ...Array.from({ length: 20 }, (_, n) => `tag ${n}`)] }),
          'more tags than cursors',
        ).to.deep.equal(['first', 'second']);
      });

      it('use the tags of the message when one was removed meanwhile', async () => {
        await putMessage(
          world.store,
          messageRow({ id: 'f'.repeat(32), subject: 'untagged', createdAt: at(4), tags: ['gone'] }),
        );
        await world.store.messages.change({ id: 'f'.repeat(32) }, { tags: [] });
        expect(await subjects({ tags: ['gone'] })).to.deep.equal([]);
      });

      it('match messages of any of the senders, states and keys', async () => {
        expect(await subjects({ senders: ['news@example.com', 'shop@example.com'] })).to.deep.equal([
          'first',
          'second',
          'third',
        ]);
        expect(await subjects({ states: ['bounced', 'spam'] })).to.deep.equal(['second', 'third']);
        expect(await subjects({ apiKeys: [keyHash('one')] })).to.deep.equal(['first', 'fourth']);
        expect(await subjects({ apiKeys: [keyHash('of another account')] })).to.deep.equal([]);
      });

      it('are combined', async () => {
        expect(
          await subjects({
            from: at(1),
            before: at(4),
            tags: ['a', 'b', 'c'],
            senders: ['news@example.com'],
            states: ['sent'],
            apiKeys: [keyHash('one')],
          }),
        ).to.deep.equal(['first']);
        expect(await subjects({ tags: ['b'], states: ['spam'] })).to.deep.equal([]);
      });

      it('exclude messages sent after the job began', async () => {
        await putMessage(world.store, messageRow({ subject: 'later', createdAt: new Date(world.clock.now() + 1) }));
        await putMessage(world.store, messageRow({ subject: 'now', createdAt: new Date(world.clock.now()) }));
        expect(await subjects({})).to.deep.equal(['first', 'second', 'third', 'fourth', 'now']);
      });
    });
  });
