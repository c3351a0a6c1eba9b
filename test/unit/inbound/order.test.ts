import { expect } from 'chai';
import { ORDER_NAMES, type Order, sequencingOf, toOrder } from '../../../src/inbound/order.ts';

const ROUTE = '1.1';

async function sequence(order: Order, header: string, mailFrom = 'envelope@example.org', route = ROUTE) {
  const bytes = Buffer.from(`${header.replaceAll('\n', '\r\n')}\r\n\r\nHello.\r\n`, 'latin1');
  return (await sequencingOf({ kind: 'memory', bytes }, mailFrom))(order, route);
}

describe('the sequence of a message', () => {
  it('is none without an order, and none for one of a later version', async () => {
    expect(ORDER_NAMES).to.deep.equal(['none', 'sender', 'thread']);
    expect([toOrder(undefined), toOrder('size'), toOrder('thread')]).to.deep.equal(['none', 'none', 'thread']);
    expect(await sequence('none', 'From: a@b.example')).to.equal(undefined);
    expect((await sequencingOf({ kind: 'memory', bytes: new Uint8Array() }, ''))(undefined, ROUTE)).to.equal(undefined);
  });

  it('is the same for one author in any notation, and does not reveal the address', async () => {
    const ada = await sequence('sender', 'From: ada@bücher.example');
    expect(ada).to.match(/^sender:[\w-]{22}$/);
    for (const same of [
      'From: Ada <ADA@b\u00fccher.EXAMPLE>',
      'From: "Lovelace, Ada" <ada@xn--bcher-kva.example>\nFrom: other@example.org',
      'fROM :\n =?utf-8?q?A=64a?=\n <ada@xn--bcher-kva.example>',
      'X: y\nFrom: nobody\nFrom: ada@b\u00fccher.example',
      'From: ada@b\u00fccher.example, bob@example.org',
    ])
      expect(await sequence('sender', same), same).to.equal(ada);
    for (const other of ['From: eda@b\u00fccher.example', 'From: ada@example.org', 'Sender: ada@b\u00fccher.example'])
      expect(await sequence('sender', other), other).not.to.equal(ada);
  });

  it('is that of the envelope sender without an author; without both there is none', async () => {
    const ada = await sequence('sender', 'From: ada@example.org');
    expect(await sequence('sender', 'Subject: x', 'ada@EXAMPLE.org')).to.equal(ada);
    expect(await sequence('sender', 'From: undisclosed:;', 'ada@example.org')).to.equal(ada);
    expect(await sequence('sender', ' From: eve@example.org', 'ada@example.org'), 'all of it is body').to.equal(ada);
    expect(await sequence('sender', 'Subject: x', '')).to.equal(undefined);
  });

  it('is the same within a conversation: of its first message, and of replies by either field', async () => {
    const root = await sequence('thread', 'Message-ID: <root@x.example>');
    expect(root).to.match(/^thread:[\w-]{22}$/);
    expect(await sequence('thread', 'In-Reply-To: <root@x.example>\nMessage-ID: <2@x.example>')).to.equal(root);
    expect(
      await sequence('thread', 'Message-Id: <3@x.example>\nReferences: <root@x.example>\n\t<2@x.example>'),
    ).to.equal(root);
    expect(await sequence('thread', 'Message-ID: <2@x.example>')).not.to.equal(root);
    expect(await sequence('thread', 'From: a@b.example')).to.equal(undefined);
  });

  it('belongs to one route', async () => {
    const header = 'From: ada@example.org';
    expect(await sequence('sender', header, '', '1.2')).not.to.equal(await sequence('sender', header));
    expect(await sequence('sender', header, '', '1.1+1')).not.to.equal(await sequence('sender', header));
  });

  it('is read from the first part of a header only, however large that is', async () => {
    const late = await sequence('sender', `${'X: y\n'.repeat(20_000)}From: ada@example.org`, '');
    expect(late).to.equal(undefined);
    for (const hostile of [
      `From: ${'a@b.c,'.repeat(20_000)}`,
      `From: ${'('.repeat(100_000)}`,
      `From: ${'=?x?q?a?= '.repeat(20_000)}`,
      `From: a@b.c\n${'From: a@b.c\n'.repeat(20_000)}`,
      `References: ${'<a'.repeat(50_000)}`,
      `References: <${'a'.repeat(100_000)}>`,
      '\n'.repeat(100_000),
    ])
      for (const order of ORDER_NAMES) await sequence(order, hostile);
  });
});
