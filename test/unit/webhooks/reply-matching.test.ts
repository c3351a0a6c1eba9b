import { expect } from 'chai';
import { nameOfAddress, toConversation } from '../../../src/mail/replies/sent-names.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createReplyMatching } from '../../../src/webhooks/reply-matching.ts';
import { drivers } from '../../support/database.ts';
import { ACCOUNT, createRecording, MESSAGE, newMessage } from '../../support/recording.ts';

const ID = 'f'.repeat(32);

for (const driver of drivers)
  describe(`the sent message that a reply answers, ${driver.name}`, () => {
    let store: Store;
    let world: ReturnType<typeof createRecording>;
    beforeEach(async () => {
      store = await openStore(await driver.open());
      world = createRecording(store);
    });
    afterEach(() => store.close());

    const begin = (fields: Partial<Parameters<typeof world.recorder.begin>[0]> = {}) =>
      world.recorder.begin({ ...newMessage(), id: ID, tags: [], ...fields });

    /** The `_id` of what a message with these fields answers. */
    async function find(
      fields: string,
      { account = ACCOUNT, from = 'jo@to.test', replyTo = '' } = {},
    ): Promise<string | null> {
      const { of } = createReplyMatching({ store, recorder: world.recorder });
      const client = { address: null, helo: null, tls: null };
      const replyData = replyTo === '' ? {} : { replyData: { [replyTo]: 'x' } };
      const envelope = { mailFrom: from, client, ...replyData };
      const message = { id: 'm', receivedAt: world.clock.now(), envelope, trace: '', verdicts: null };
      const bytes = Buffer.from(`${fields}\r\n\r\nbody\r\n`);
      const delivery = { id: 'd', recipient: replyTo || 'in@in.test' };
      const found = await of(account, { message, body: { kind: 'memory', bytes }, delivery }, true);
      const record: { _id?: unknown } = found?.record ?? {};
      return found ? String(record._id) : null;
    }

    const named = (text: string) => toConversation([{ name: 'Message-ID', value: text }], 'a@b').conversation ?? {};

    it('is found while it is kept, for its own account only', async () => {
      await begin();
      expect(await find(`In-Reply-To: <${ID}@any.host>`)).to.equal(ID);
      expect(await find(`In-Reply-To: <${ID}@any.host>`, { account: 'other' })).to.equal(null);
      await store.messages.remove({ id: ID });
      expect(await find(`In-Reply-To: <${ID}@any.host>`)).to.equal(null);
      expect((await store.messageEvents.many({ account: ACCOUNT })).map(({ kind }) => kind)).to.deep.equal(['reply']);
    });

    it('is the one sent to the author, of many with one id; otherwise the latest', async () => {
      const old = world.clock.now();
      for (let n = 0; n < 30; n++) {
        const id = String(n).padStart(32, '0');
        await begin({ id, email: `Jo-${n}@to.test`, createdAt: new Date(old + n), ...named('<shared@crm>') });
      }
      world.clock.advance(1000);
      const answer = 'In-Reply-To: <SHARED@crm>';
      expect(await find(`From: jo-7@to.test\r\n${answer}`)).to.equal('7'.padStart(32, '0'));
      expect(await find(`From: x@y.example\r\n${answer}`, { from: 'jo-8@to.test' })).to.equal('8'.padStart(32, '0'));
      expect(await find(`From: x@y.example\r\n${answer}`)).to.equal('29'.padStart(32, '0'));
      expect(await find(answer, { account: 'other' })).to.equal(null);
    });

    it('is found by an id of a relay, once its reply is recorded', async () => {
      await begin({ id: MESSAGE });
      const names = named('<given-by-relay@relay>').names ?? [];
      const event = { id: 'e1', account: ACCOUNT, message: MESSAGE, kind: 'send', at: new Date(), names } as const;
      expect(await find('References: <given-by-relay@relay>')).to.equal(null);
      expect(await world.recorder.record(event)).to.equal('recorded');
      expect(await world.recorder.record(event)).to.equal('duplicate');
      expect(await find('References: <given-by-relay@relay>')).to.equal(MESSAGE);
      expect(await find('References: <given-by-relay@relay>', { account: 'other' })).to.equal(null);
    });

    it('is the latest of several to the same person, but none that was sent later', async () => {
      const address = `x+r-${'0'.repeat(30)}@in.test`;
      const sent = (id: string, ms: number) =>
        begin({
          id,
          createdAt: new Date(world.clock.now() + ms),
          email: 'jo@to.test',
          names: [nameOfAddress(address)],
        });
      for (const [n, ms] of [-3000, -1000, -2000, 3_600_000].entries()) await sent(String(n).repeat(32), ms);
      expect(await find('From: jo@to.test', { replyTo: address })).to.equal('1'.repeat(32));
    });

    it('is found by the reply address, after all ids', async () => {
      const address = `x+r-${'0'.repeat(30)}@in.test`;
      await begin({ names: [nameOfAddress(address)] });
      await begin({ id: '1'.repeat(32) });
      expect(await find('Subject: x', { replyTo: address.toUpperCase() })).to.equal(ID);
      expect(await find('Subject: x', { replyTo: address, account: 'other' })).to.equal(null);
      expect(await find(`References: <${'1'.repeat(32)}@a>`, { replyTo: address })).to.equal('1'.repeat(32));
    });

    it('costs no query for mail without references, and two for mail with a hundred', async () => {
      let asked = 0;
      const counted = <T extends object>(rows: T): T =>
        new Proxy(rows, {
          get(target, name) {
            asked++;
            return Reflect.get(target, name);
          },
        });
      const { messages, messageNames } = store;
      const { of } = createReplyMatching({
        store: { messages: counted(messages), messageNames: counted(messageNames) },
        recorder: world.recorder,
      });
      const ask = async (fields: string) => {
        const client = { address: null, helo: null, tls: null };
        const envelope = { mailFrom: 'a@b.example', client };
        const message = { id: 'm', receivedAt: 0, envelope, trace: '', verdicts: null };
        const body = { kind: 'memory', bytes: Buffer.from(`${fields}\r\n\r\n`) } as const;
        asked = 0;
        await of(ACCOUNT, { message, body, delivery: { id: 'd', recipient: 'in@in.test' } }, true);
        return asked;
      };
      expect(await ask('Message-ID: <1@a>')).to.equal(0);
      const many = Array.from({ length: 100 }, (_, n) => `<${String(n).padStart(32, '0')}@a>`).join(' ');
      expect(await ask(`References: ${many}`)).to.equal(2);
    });
  });
