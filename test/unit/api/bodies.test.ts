import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { z } from 'zod';
import { OPERATIONS } from '../../../src/api/operations/index.ts';
import { maxItems } from '../../../src/api/requests/bounds.ts';
import { HOST_OPERATIONS } from '../../../src/console/host/index.ts';
import { type ApiWorld, KEY, startApi } from '../../support/api.ts';

const people = (count: number) =>
  Array.from({ length: count }, (_, n) => ({ email: `a${n}@b.example`, name: `A ${n}`, type: 'to' }));
const MESSAGE = { from_email: 'news@example.com', subject: 'x', text: 'Hello *|N1|*' };

describe('the body of a call', () => {
  let world: ApiWorld;
  before(async () => {
    world = await startApi({ settings: { maxMessageBytes: 26_214_400 } });
  });
  after(() => world.stop());

  const faultOf = async (path: string, body: string | Uint8Array<ArrayBuffer>, headers = {}) => {
    const answer = await world.send(`${path}.json`, body, headers);
    return `${answer.status} ${answer.body.message}`;
  };

  describe('has room for the limits of the contract:', () => {
    it('a message to 1000 recipients with 60 merge variables and metadata for each', async () => {
      const to = people(1000);
      const merge_vars = to.map(({ email }, n) => ({
        rcpt: email,
        vars: Array.from({ length: 60 }, (_, at) => ({ name: `n${at}`, content: `value ${n} ${at}` })),
      }));
      const recipient_metadata = to.map(({ email }, n) => ({ rcpt: email, values: { user: n, plan: null } }));
      const { status, body } = await world.call('/messages/send', {
        message: { ...MESSAGE, to, merge_vars, recipient_metadata },
      });
      expect(status, JSON.stringify(body).slice(0, 200)).to.equal(200);
      expect(body).to.have.length(1000);
    });

    it('a form of 20,000 fields with a merge variable of each recipient', async () => {
      const fields = people(1000).flatMap(({ email }, n) => [
        [`message[to][${n}][email]`, email],
        ...Array.from({ length: 6 }, (_, at) => [
          [`message[merge_vars][${n}][vars][${at}][name]`, `n${at}`],
          [`message[merge_vars][${n}][vars][${at}][content]`, 'x'],
        ]).flat(),
        [`message[merge_vars][${n}][rcpt]`, email],
      ]);
      const form = [['key', KEY], ['message[from_email]', 'a@example.com'], ['message[text]', 'x'], ...fields]
        .map((pair) => pair.map(encodeURIComponent).join('='))
        .join('&');
      const { status, body } = await world.send('/messages/send.json', form, {
        'content-type': 'application/x-www-form-urlencoded',
      });
      expect({ status, count: body.length }).to.deep.equal({ status: 200, count: 1000 });
    });

    it('a document of 25 MB, with any line endings', async () => {
      for (const end of ['\r\n', '\n']) {
        const raw_message = `Subject: a${end}${end}${`${'x'.repeat(76)}${end}`.repeat(320_000)}`;
        const { status, body } = await world.call('/inbound/send-raw', {
          raw_message,
          to: ['mailbox-1@inbound.example.com'],
        });
        expect({ status, count: body.length }).to.deep.equal({ status: 200, count: 1 });
      }
    });

    it('a template with 10,000 contents and merge variables', async () => {
      const template_content = Array.from({ length: 10_000 }, (_, n) => ({ name: `r${n}`, content: 'x' }));
      const merge_vars = Array.from({ length: 10_000 }, (_, n) => ({ name: `v${n}`, content: n }));
      const params = { template_name: 'Example Template', template_content, merge_vars };
      expect((await world.call('/templates/render', params)).status).to.equal(200);
      template_content.push({ name: 'more', content: 'x' });
      expect(await faultOf('/templates/render', JSON.stringify({ key: KEY, ...params }))).to.contain(
        '422 Validation error: {"template_content":"Please enter at most 10000 items"}',
      );
    });
  });

  describe('is rejected, naming the limit:', () => {
    const structs = (count: number) => `{"key":"${KEY}","message":{"to":[${'{},'.repeat(count)}{}]}}`;
    for (const [name, path, body, fault] of [
      [
        'JSON of too many values, for a message',
        '/messages/send',
        structs(200_000),
        '422 Validation error: {"body":"The JSON holds more than 200000 values"}',
      ],
      [
        'JSON of too many values',
        '/users/ping',
        structs(100_000),
        '422 Validation error: {"body":"The JSON holds more than 100000 values"}',
      ],
      [
        'a list that is too long, before its items',
        '/messages/send',
        structs(2000),
        '.to: Please enter at most 1000 items"}',
      ],
      [
        'a map with too many names',
        '/messages/send',
        JSON.stringify({
          key: KEY,
          message: { metadata: Object.fromEntries(people(1001).map(({ email }) => [email, 1])) },
        }),
        '.metadata: Please enter at most 1000 names"}',
      ],
      [
        'too many different names',
        '/messages/send',
        JSON.stringify({ key: KEY, message: people(10_001).map(({ email }) => ({ [email]: 1 })) }),
        'more than 10000 different names',
      ],
      [
        'a form of nothing but separators',
        '/users/ping',
        '&'.repeat(20_001),
        '422 Validation error: {"body":"The form has more than 20000 fields"}',
      ],
      [
        'a form of too many structs',
        '/users/ping',
        Array.from({ length: 5000 }, (_, n) => `a[${n}]${'[0]'.repeat(20)}=`).join('&'),
        '422 Validation error: {"body":"The form has more than 60000 lists and structs"}',
      ],
    ] as const)
      it(name, async () => {
        expect(await faultOf(path, body)).to.contain(fault);
      });

    it('brotli, deflate and other encodings, and gzip that unpacks to far more', async () => {
      const body = Buffer.from(JSON.stringify({ key: KEY }));
      for (const [encoding, bytes] of [
        ['br', brotliCompressSync(body)],
        ['deflate', deflateSync(body)],
        ['gzip, gzip', gzipSync(gzipSync(body))],
      ] as const)
        expect(await faultOf('/users/ping', new Uint8Array(bytes), { 'content-encoding': encoding })).to.contain(
          '415 Validation error: {"body":"The content encoding',
        );
      const bomb = gzipSync(JSON.stringify({ key: KEY, a: 'x'.repeat(900_000) }));
      expect(await faultOf('/users/ping', new Uint8Array(bomb), { 'content-encoding': 'gzip' })).to.contain(
        '413 Validation error: {"body":"The body unpacks to more than 50 times',
      );
      expect(
        (await world.send('/users/ping.json', new Uint8Array(gzipSync(body)), { 'content-encoding': 'gzip' })).status,
      ).to.equal(200);
    });
  });

  it('without a valid key is rejected for the key before its parameters, however large it is', async () => {
    const params = { template_name: 5, message: { to: people(3000) } };
    expect(await faultOf('/messages/send', JSON.stringify({ key: 'none', ...params }))).to.contain(
      '401 Invalid API key',
    );
    expect(await faultOf('/messages/send', JSON.stringify(params))).to.contain('422 You must specify a key value');
    expect(await faultOf('/messages/send', JSON.stringify({ key: [1], ...params }))).to.contain('401 Invalid API key');
  });

  it('names the position of the first error in a list that is read in pieces', async () => {
    const to: object[] = people(1000);
    to[987] = { email: 7 };
    expect((await world.call('/messages/send', { message: { ...MESSAGE, to } })).body.message).to.equal(
      'Validation error: {"message":".to[987].email: Please enter a string"}',
    );
    const emptied = Array.from({ length: 600 }, () => ({ name: 'a', content: 'x' }));
    const params = { template_name: 'Example Template', template_content: [...emptied, {}] };
    expect((await world.call('/templates/render', params)).body.message).to.contain('[600].name: Please enter a value');
  });
});

describe('every operation', () => {
  /** Lists without a limit, by their path; what may hold any JSON has none. */
  function endless(schema: z.core.$ZodType, path: string): string[] {
    if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable)
      return endless(schema._zod.def.innerType, path);
    if (schema instanceof z.ZodPipe) return endless(schema._zod.def.in, path);
    if (schema instanceof z.ZodUnion) return schema._zod.def.options.flatMap((one) => endless(one, path));
    if (schema instanceof z.ZodRecord) return endless(schema._zod.def.valueType, `${path}{}`);
    if (schema instanceof z.ZodObject)
      return Object.entries(schema.shape).flatMap(([name, field]) => endless(field, `${path}.${name}`));
    if (!(schema instanceof z.ZodArray)) return [];
    const { element } = schema._zod.def;
    if (element instanceof z.ZodUnknown) return [];
    return [...(maxItems(schema) === Infinity ? [path] : []), ...endless(element, `${path}[]`)];
  }

  it('has a limit on each list of its parameters', () => {
    expect([...OPERATIONS, ...HOST_OPERATIONS].flatMap(({ path, params }) => endless(params, path))).to.deep.equal([]);
  });
});
