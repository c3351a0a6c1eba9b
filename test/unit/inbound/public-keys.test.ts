import { generateKeyPairSync, KeyObject } from 'node:crypto';
import { expect } from 'chai';
import { createPublicKeys, type PublicKey, type ReadKey } from '../../../src/inbound/verdicts/signatures.ts';

const PEM = String(
  generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey.export({ type: 'spki', format: 'pem' }),
);
const NAME = 'mail._domainkey.example';
const OPTIONS = { strict: true, hashAlgo: 'sha256' };

/** A reader of keys and a DNS of one record, both counting; a record of `none` holds no key. */
function world(record: string) {
  const seen = { read: 0, asked: [] as string[], record };
  const read: ReadKey = async (_type, name, _bits, lookUp) => {
    seen.read += 1;
    if (String((await lookUp(name))[0]) === 'none') throw new Error('no key');
    return { publicKey: PEM };
  };
  const keysOf = createPublicKeys(read, (name) => name.toLowerCase());
  const message = () =>
    keysOf(async (name) => {
      seen.asked.push(name);
      return [[seen.record]];
    });
  return { seen, message };
}

const get = (
  keys: { get(type: string, name: string, bits: number, options: object): Promise<PublicKey> },
  name = NAME,
  options: object = OPTIONS,
) => keys.get('DKIM', name, 1024, options);

describe('public keys', () => {
  it('are parsed once for all messages, and passed as objects', async () => {
    const { seen, message } = world('p=1');
    const first = await get(message());
    expect(await get(message())).to.equal(first);
    expect(first.publicKey).to.be.instanceOf(KeyObject);
    expect(seen.read).to.equal(1);
  });

  it('are queried once by every message, under the name in ASCII', async () => {
    const { seen, message } = world('p=1');
    const keys = message();
    await Promise.all([get(keys, 'A.example'), get(keys, 'A.example')]);
    await get(message(), 'A.example');
    expect(seen.asked).to.deep.equal(['a.example', 'a.example']);
  });

  it('are parsed again when the record has changed, or is used for something else', async () => {
    const { seen, message } = world('p=1');
    await get(message());
    seen.record = 'p=2';
    await get(message());
    await get(message(), NAME, { ...OPTIONS, hashAlgo: 'sha1' });
    expect(seen.read).to.equal(3);
  });

  it('are dropped with their record, and an error is not kept', async () => {
    const { seen, message } = world('p=1');
    await get(message());
    seen.record = 'none';
    expect(await get(message()).catch((error: unknown) => String(error))).to.equal('Error: no key');
    expect(await get(message()).catch((error: unknown) => String(error))).to.equal('Error: no key');
    expect(seen.read).to.equal(3);
  });

  it('are dropped, the oldest first, at a thousand', async () => {
    const { seen, message } = world('p=0');
    for (let n = 0; n <= 1000; n++) {
      seen.record = `p=${n}`;
      await get(message());
    }
    await get(message());
    expect(seen.read).to.equal(1001);
    seen.record = 'p=0';
    await get(message());
    expect(seen.read).to.equal(1002);
  });
});
