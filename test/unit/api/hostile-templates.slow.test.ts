import { expect } from 'chai';
import { type ApiWorld, startApi } from '../../support/api.ts';
import { repeated } from '../../support/growth.ts';
import { size } from '../../support/sizes.ts';

// Templates of megabytes that are made to hold the loop up. SMTP shares it.

const CODES: Readonly<Record<string, string>> = {
  'conditions that never end': '*|IF:',
  'conditions inside one another': '*|IF:A|*',
  'conditions that do not hold': '*|IF:B|*',
  'ends of conditions': '*|END:IF|*',
  'beginnings of tags': '*|',
  'ends of tags': '|*',
  tags: '*|A|*',
  'long values to compare': '*|IF:BIG<6|*',
  'tags that are never closed': '<div>',
  'regions inside one another': '<div mc:edit=x>',
  'regions without content': '<div mc:edit=z>',
  'closed regions': '<p mc:edit=x></p>',
  'ends without beginnings': '</div>',
  'less-than signs': '<',
  'comments that never end': '<!--',
  'quotes that never end': '<a b="',
  attributes: ' mc:edit=x',
};
const SIZE = size(5_000_000, 2_000_000);

describe('hostile templates', function () {
  this.timeout(60_000);
  let world: ApiWorld;
  before(async () => {
    world = await startApi({ settings: { maxBodyBytes: 8_000_000 } });
  });
  after(() => world.stop());

  const params = {
    template_name: 'hostile',
    template_content: [{ name: 'x', content: 'N' }],
    merge_vars: [
      { name: 'a', content: '1' },
      { name: 'big', content: '5'.repeat(100_000) },
    ],
  };

  for (const [what, unit] of Object.entries(CODES)) {
    it(`do not delay other calls while they are rendered: ${what}`, async () => {
      const code = `<p mc:edit="first">*|A|*${repeated(unit, SIZE)}`.slice(0, SIZE);
      await world.call('/templates/delete', { name: 'hostile' });
      expect((await world.call('/templates/add', { name: 'hostile', code })).status).to.equal(200);
      let done = false;
      const rendered = world.call('/templates/render', params).finally(() => {
        done = true;
      });
      for (let pings = 0; pings < 3; pings++) {
        expect((await world.call('/users/ping')).body).to.equal('PONG!');
        expect(done, 'answered before the template').to.equal(false);
      }
      const { status, body } = await rendered;
      expect(status, JSON.stringify(body).slice(0, 200)).to.equal(200);
      expect(body.html.slice(0, 25)).to.equal('<p mc:edit="first">1' + body.html.slice(20, 25));
    });
  }

  it('are stored byte for byte', async () => {
    const code = "\u0001<a b='\"'>\r\n\t&nbsp&#0;\u2028\ufeff💥 <!-- ]]> *|IF: $& \\u0000 ${x}";
    await world.call('/templates/add', { name: 'bytes', code });
    expect((await world.call('/templates/info', { name: 'bytes' })).body).to.include({ code, publish_code: code });
    expect(
      (await world.call('/templates/render', { template_name: 'bytes', template_content: [] })).body,
    ).to.deep.equal({ html: code });
  });

  it('are rejected above the size limits of a row', async () => {
    const bytes = (size: number) => ({ code: 'ä'.repeat(size / 2) });
    expect((await world.call('/templates/add', { name: 'large', ...bytes(5_000_000) })).status).to.equal(200);
    expect((await world.call('/templates/add', { name: 'larger', ...bytes(5_000_002) })).body.message).to.equal(
      'Validation error: {"code":"Please enter at most 5000000 bytes"}',
    );
    expect(
      (await world.call('/templates/update', { name: 'large', text: 't'.repeat(2_000_001) })).body.message,
    ).to.equal('Validation error: {"text":"Please enter at most 2000000 bytes"}');
  });

  it('are all listed, however large they are together', async () => {
    const code = 'x'.repeat(4_900_000);
    for (let i = 0; i < 4; i++)
      expect((await world.call('/templates/add', { name: `page ${i}`, code })).status).to.equal(200);
    const { status, body } = await world.call('/templates/list');
    expect(status).to.equal(200);
    const pages = body.filter(({ code }: { code: string }) => code.length === 4_900_000);
    expect(pages.map(({ name }: { name: string }) => name)).to.deep.equal(['page 0', 'page 1', 'page 2', 'page 3']);
  });

  it('have names that work as no query, path or prototype', async () => {
    for (const name of [
      '__proto__',
      'constructor',
      '$where',
      'a.b',
      '../a',
      "' OR 1=1 --",
      '{{x}}',
      '*|A|*',
      '%00',
      'a\\b',
    ]) {
      const made = await world.call('/templates/add', { name, labels: [name] });
      expect(made.status, name).to.equal(200);
      expect((await world.call('/templates/info', { name })).body, name).to.deep.equal(made.body);
      expect((await world.call('/templates/list', { label: name })).body, name).to.deep.equal([made.body]);
      expect((await world.call('/templates/delete', { name })).body, name).to.deep.equal(made.body);
    }
  });
});
