import { expect } from 'chai';
import { counterId } from '../../../src/store/rows/counters.ts';
import { ACCOUNT, type ApiWorld, HOUR_MS, OTHER_KEY, startApi } from '../../support/api.ts';
import { drivers } from '../../support/database.ts';

const NEVER = {
  publish_code: null,
  publish_subject: null,
  publish_from_email: null,
  publish_from_name: null,
  publish_text: null,
  published_at: null,
};
const OLD = { code: '<p>old</p>', subject: 'old', from_email: 'old@example.com', from_name: 'Old', text: 'old' };
const NEW = { code: '<p>new</p>', subject: 'new', from_email: 'new@example.com', from_name: 'New', text: 'new' };
const published = (content: object) =>
  Object.fromEntries(Object.entries(content).map(([name, value]) => [`publish_${name}`, value]));
const refused = (field: string, text: string) => ({
  status: 'error',
  code: -2,
  name: 'ValidationError',
  message: `Validation error: ${JSON.stringify({ [field]: text })}`,
});

for (const driver of drivers) {
  describe(`templates, ${driver.name}`, function () {
    this.timeout(60_000);
    let world: ApiWorld;
    // FerretDB loses updates of one document from several connections.
    beforeEach(async () => {
      world = await startApi({ database: (log) => driver.open({ log, crowded: true }) });
    });
    afterEach(() => world.stop());

    const ok = async (path: string, params: object = {}) => {
      const { status, body } = await world.call(`/templates/${path}`, params);
      expect(status, JSON.stringify(body)).to.equal(200);
      return body;
    };
    const fails = async (path: string, params: object) => {
      const { status, body } = await world.call(`/templates/${path}`, params);
      expect(status).to.be.within(400, 499);
      return body;
    };
    const names = async (params: object = {}) => (await ok('list', params)).map(({ name }: { name: string }) => name);
    const later = (ms = 60_000) => world.clock.advance(ms);

    it('are published when added, or stay drafts', async () => {
      expect(await ok('add', { name: 'Letter 1', ...OLD, labels: ['a', 'b', 'a'] })).to.deep.equal({
        slug: 'letter-1',
        name: 'Letter 1',
        labels: ['a', 'b'],
        ...OLD,
        publish_name: 'Letter 1',
        ...published(OLD),
        published_at: '2026-01-05 12:00:00',
        created_at: '2026-01-05 12:00:00',
        updated_at: '2026-01-05 12:00:00',
      });
      expect(await ok('add', { name: 'Letter 2', ...OLD, publish: false })).to.deep.equal({
        slug: 'letter-2',
        name: 'Letter 2',
        labels: [],
        ...OLD,
        publish_name: 'Letter 2',
        ...NEVER,
        created_at: '2026-01-05 12:00:00',
        updated_at: '2026-01-05 12:00:00',
      });
      expect(await ok('add', { name: 'Letter 3' }), 'nothing but a name').to.deep.include({
        code: null,
        publish_code: null,
        published_at: '2026-01-05 12:00:00',
        labels: [],
      });
      expect(await ok('add', { name: 'Letter 4', code: '', from_email: '', subject: '' })).to.include({
        code: '',
        from_email: null,
        subject: '',
      });
    });

    it('are found by exact name or slug', async () => {
      const made = await ok('add', { name: 'My Letter' });
      for (const name of ['My Letter', 'my-letter']) expect(await ok('info', { name })).to.deep.equal(made);
      for (const name of [
        'my letter',
        'MY-LETTER',
        'My-Letter',
        ' My Letter',
        'my_letter',
        '!',
        '\u202e',
        'my-letter\0',
        'My\0Letter',
      ]) {
        expect(await fails('info', { name }), name).to.deep.equal({
          status: 'error',
          code: 5,
          name: 'Unknown_Template',
          message: `No such template "${name}"`,
        });
      }
    });

    it('reject a name whose slug is taken, and unprintable names', async () => {
      const taken = {
        status: 'error',
        code: 6,
        name: 'Invalid_Template',
        message: 'A template with name "Example Template" already exists',
      };
      for (const name of ['Example Template', 'example-template', 'EXAMPLE template', 'Example  Template!'])
        expect(await fails('add', { name, labels: ['x'] }), name).to.deep.equal(taken);
      expect(
        await world.store.templateLabels.many({ account: ACCOUNT, label: 'x' }),
        'nothing is left of the attempts',
      ).to.deep.equal([]);
      for (const name of ['a\u202eb', 'a\nb', '***', 'a\0b', '\0', 'a\ud800b'])
        expect(await fails('add', { name }), JSON.stringify(name)).to.include({ code: 6, name: 'Invalid_Template' });
      expect(
        (await world.call('/templates/add', { key: OTHER_KEY, name: 'Example Template' })).status,
        'names belong to an account',
      ).to.equal(200);
    });

    it('enforce the limits of labels, names and addresses', async () => {
      const label = 'l'.repeat(100);
      expect(
        (await ok('add', { name: 'Ten', labels: Array.from({ length: 10 }, (_, i) => `${label.slice(1)}${i}`) }))
          .labels,
      ).to.have.length(10);
      expect(
        await fails('add', { name: 'Eleven', labels: Array.from({ length: 11 }, (_, i) => `${i}`) }),
      ).to.deep.equal(refused('labels', 'Please enter at most 10 items'));
      expect(await fails('update', { name: 'Ten', labels: ['a', `${label}l`] })).to.deep.equal(
        refused('labels', '[1]: Please enter at most 100 characters'),
      );
      expect(await fails('add', { name: 'n'.repeat(256) })).to.deep.equal(
        refused('name', 'Please enter at most 255 characters'),
      );
      await ok('add', { name: 'n'.repeat(255) });
      expect(await fails('add', { name: 'Sender', from_email: 'nobody' })).to.deep.equal(
        refused('from_email', 'Not a valid email address'),
      );
      expect(await fails('update', { name: 'Ten', from_email: 'a@b.example\r\nBcc: c@d.example' })).to.deep.equal(
        refused('from_email', 'Not a valid email address'),
      );
    });

    it('change only the given fields', async () => {
      await ok('add', { name: 'Letter', ...OLD, labels: ['a'] });
      later();
      const nothing = {
        from_email: null,
        from_name: null,
        subject: null,
        code: null,
        text: null,
        publish: null,
        labels: null,
      };
      expect(await ok('update', { name: 'Letter', ...nothing })).to.deep.include({
        ...OLD,
        labels: ['a'],
        published_at: '2026-01-05 12:01:00',
        updated_at: '2026-01-05 12:01:00',
        created_at: '2026-01-05 12:00:00',
      });
      for (const [field, value] of Object.entries(NEW)) {
        const before = await ok('info', { name: 'Letter' });
        expect(await ok('update', { name: 'letter', [field]: value, publish: false }), field).to.deep.equal({
          ...before,
          [field]: value,
        });
      }
      expect(await ok('update', { name: 'Letter', subject: '', from_email: '', labels: [] })).to.deep.include({
        subject: '',
        publish_subject: '',
        from_email: null,
        publish_from_email: null,
        labels: [],
      });
    });

    it('keep draft and published version apart until they are published', async () => {
      await ok('add', { name: 'Letter', ...OLD });
      later();
      const drafted = await ok('update', { name: 'Letter', ...NEW, publish: false });
      expect(drafted).to.include({
        ...NEW,
        ...published(OLD),
        published_at: '2026-01-05 12:00:00',
        updated_at: '2026-01-05 12:01:00',
      });
      later();
      expect(await ok('publish', { name: 'letter' })).to.deep.equal({
        ...drafted,
        ...published(NEW),
        published_at: '2026-01-05 12:02:00',
        updated_at: '2026-01-05 12:02:00',
      });
      await ok('update', { name: 'Letter', subject: 'draft', publish: false });
      expect(await ok('update', { name: 'Letter', text: 'now' }), 'publishing publishes the whole draft').to.include({
        publish_subject: 'draft',
        publish_text: 'now',
      });
    });

    it('can be published for the first time', async () => {
      await ok('add', { name: 'Letter', ...OLD, publish: false });
      later();
      expect(await ok('publish', { name: 'Letter' })).to.include({
        ...OLD,
        ...published(OLD),
        published_at: '2026-01-05 12:01:00',
      });
    });

    it('are deleted with their labels, and returned as they were', async () => {
      const made = await ok('add', { name: 'Letter', ...OLD, labels: ['a'] });
      expect(await ok('delete', { name: 'letter' })).to.deep.equal(made);
      expect(await fails('info', { name: 'Letter' })).to.include({ name: 'Unknown_Template' });
      expect(await fails('delete', { name: 'Letter' })).to.include({ name: 'Unknown_Template' });
      expect(await ok('list', { label: 'a' })).to.deep.equal([]);
      expect(await world.store.templateLabels.many({ account: ACCOUNT, label: 'a' })).to.deep.equal([]);
      expect(await ok('add', { name: 'Letter' }), 'the name is free again').to.deep.include({ labels: [], code: null });
    });

    it('are listed by name, or by exact label', async () => {
      await ok('add', { name: 'b', labels: ['one', 'two'] });
      await ok('add', { name: 'a', labels: ['two'] });
      await ok('add', { name: 'c', labels: ['TWO', 'two three'] });
      expect(await names()).to.deep.equal(['Example Template', 'a', 'b', 'c']);
      expect(await names({ label: '' }), 'none').to.have.length(4);
      expect(await names({ label: 'two' })).to.deep.equal(['a', 'b']);
      expect(await names({ label: 'TWO' })).to.deep.equal(['c']);
      expect(await names({ label: 'tw' })).to.deep.equal([]);
      await ok('update', { name: 'a', labels: ['one'] });
      expect(await names({ label: 'two' })).to.deep.equal(['b']);
      expect(await names({ label: 'one' })).to.deep.equal(['a', 'b']);
      await ok('update', { name: 'a', subject: 'x' });
      expect(await names({ label: 'one' }), 'labels that were not given stay').to.deep.equal(['a', 'b']);
      expect(await names({ label: 'one', after: 'a' })).to.deep.equal(['b']);
      expect((await world.call('/templates/list', { key: OTHER_KEY, label: 'one' })).body).to.deep.equal([]);
    });

    it('use the labels of the template, not leftover label rows', async () => {
      await world.store.templateLabels.insert({
        id: 'ExampleTemplateId00001 stray',
        account: ACCOUNT,
        label: 'stray',
        template: 'ExampleTemplateId00001',
        name: 'Example Template',
      });
      await world.store.templateLabels.insert({
        id: 'gone stray',
        account: ACCOUNT,
        label: 'stray',
        template: 'gone',
        name: 'Gone',
      });
      expect(await names({ label: 'stray' })).to.deep.equal([]);
      await ok('update', { name: 'Example Template', labels: ['example-label'] });
      expect(
        await world.store.templateLabels.many({ account: ACCOUNT, template: 'ExampleTemplateId00001' }),
        'the next change puts it right',
      ).to.have.length(1);
    });

    it('may have code up to their limit', async () => {
      const code = 'x'.repeat(5_000_000);
      expect((await ok('add', { name: 'Large', code })).code).to.have.length(code.length);
      const other = 'y'.repeat(5_000_000);
      expect((await ok('update', { name: 'Large', code: other })).publish_code === other).to.equal(true);
      const { status, body } = await world.call('/templates/update', { name: 'Large', code: `${code}x` });
      expect({ status, message: body.message }).to.deep.equal({
        status: 422,
        message: 'Validation error: {"code":"Please enter at most 5000000 bytes"}',
      });
    }).timeout(30_000);

    it('are all listed, however many there are', async () => {
      const at = world.clock.now();
      const content = { code: 'x', subject: null, fromEmail: null, fromName: null, text: null };
      const all = Array.from({ length: 1010 }, (_, i) => `t${String(i).padStart(4, '0')}`);
      const insert = async (name: string) => {
        await world.store.templates.insert({
          id: name,
          account: ACCOUNT,
          name,
          slug: name,
          labels: ['many'],
          draft: content,
          published: null,
          publishedAt: null,
          createdAt: new Date(at),
          updatedAt: new Date(at),
          version: 1,
        });
        await world.store.templateLabels.insert({
          id: `${name} many`,
          account: ACCOUNT,
          label: 'many',
          template: name,
          name,
        });
      };
      // Not all at once: each has seconds to be answered in.
      for (let i = 0; i < all.length; i += 50) await Promise.all(all.slice(i, i + 50).map(insert));
      for (const filter of [{ label: 'many' }, { after: 'Example Template' }]) {
        expect(await names(filter)).to.deep.equal(all);
        expect(await names({ ...filter, after: all[999] })).to.deep.equal(all.slice(1000));
        expect(await names({ ...filter, after: 't9999' })).to.deep.equal([]);
      }
    });

    it('show the numbers of the last thirty days, by slug', async () => {
      const counts = {
        sent: 0,
        hardBounces: 0,
        softBounces: 0,
        rejects: 0,
        complaints: 0,
        unsubs: 0,
        opens: 0,
        uniqueOpens: 0,
        clicks: 0,
        uniqueClicks: 0,
      };
      const add = (kind: 'template' | 'tag', key: string, ms: number, account = ACCOUNT) => {
        const start = new Date(ms);
        return world.store.counters.add(
          counterId(account, kind, 'hour', start, key),
          { sent: 1, opens: 2 },
          { account, kind, span: 'hour', key, start, firstAt: start, ...counts },
        );
      };
      const now = world.clock.now();
      await ok('add', { name: 'My Letter' });
      expect(await ok('time-series', { name: 'My Letter' })).to.deep.equal([]);
      await add('template', 'my-letter', now - HOUR_MS);
      await add('template', 'my-letter', now - 3 * HOUR_MS);
      await add('template', 'my-letter', now - 31 * 24 * HOUR_MS);
      await add('template', 'my-letter-2', now);
      await add('tag', 'my-letter', now);
      await add('template', 'my-letter', now, 'AnotherAccountId000002');
      const hour = {
        sent: 1,
        hard_bounces: 0,
        soft_bounces: 0,
        rejects: 0,
        complaints: 0,
        opens: 2,
        unique_opens: 0,
        clicks: 0,
        unique_clicks: 0,
      };
      expect(await ok('time-series', { name: 'My Letter' })).to.deep.equal([
        { time: '2026-01-05 09:00:00', ...hour },
        { time: '2026-01-05 11:00:00', ...hour },
      ]);
      await ok('delete', { name: 'My Letter' });
      await add('template', 'my-letter', now); // an open of old mail, which comes late
      await ok('add', { name: 'My Letter' });
      expect(await ok('time-series', { name: 'My Letter' }), 'another template, whatever its name').to.deep.equal([]);
      await add('template', 'my-letter', now);
      await fails('add', { name: 'my letter' });
      expect(await ok('time-series', { name: 'My Letter' }), 'as it was, when the name is taken').to.have.length(1);
    });

    it('keep one of fifty with the same name or slug', async () => {
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, i) =>
          world.call('/templates/add', {
            name: i % 2 ? 'Wanted Name' : 'wanted-name',
            subject: `${i}`,
            labels: [`l${i}`],
          }),
        ),
      );
      expect(answers.filter(({ status }) => status === 200)).to.have.length(1);
      for (const { status, body } of answers)
        if (status !== 200) expect(body).to.include({ name: 'Invalid_Template', code: 6 });
      const winner = answers.find(({ status }) => status === 200)?.body;
      expect(await ok('info', { name: 'wanted-name' })).to.deep.equal(winner);
      expect(
        (await world.store.templateLabels.many({ account: ACCOUNT, name: { in: ['Wanted Name', 'wanted-name'] } })).map(
          ({ label }) => label,
        ),
      ).to.deep.equal(winner.labels);
    });

    it('lose no part of fifty concurrent changes and publications', async () => {
      await ok('add', { name: 'Busy', publish: false });
      const fields = ['code', 'subject', 'from_name', 'text'];
      const calls = Array.from({ length: 50 }, (_, i) =>
        i % 5 === 4
          ? world.call('/templates/publish', { name: 'Busy' })
          : world.call('/templates/update', { name: 'Busy', [fields[i % 5] ?? '']: `v${i}`, publish: i % 2 === 0 }),
      );
      for (const { status } of await Promise.all(calls)) expect(status).to.equal(200);
      const end = await ok('info', { name: 'Busy' });
      for (const field of fields) expect(end[field], field).to.match(/^v\d+$/);
      expect(await world.store.templates.one({ account: ACCOUNT, name: 'Busy' })).to.include({ version: 51 });
      expect(await ok('publish', { name: 'Busy' })).to.include(
        published(Object.fromEntries(fields.map((field) => [field, end[field]]))),
      );
    });

    it('have the labels of the last of many concurrent changes, and none after a deletion', async () => {
      await ok('add', { name: 'Busy' });
      const label = (i: number) =>
        world.call('/templates/update', { name: 'Busy', labels: [`l${i % 4}`, `l${(i + 1) % 4}`] });
      await Promise.all(Array.from({ length: 16 }, (_, i) => label(i)));
      const { labels } = await ok('info', { name: 'Busy' });
      for (let i = 0; i < 4; i++)
        expect(await names({ label: `l${i}` }), `l${i}`).to.deep.equal(labels.includes(`l${i}`) ? ['Busy'] : []);
      expect(
        (await world.store.templateLabels.many({ account: ACCOUNT, name: 'Busy' })).map((row) => row.label),
      ).to.have.members(labels);
      await Promise.all([
        ...Array.from({ length: 8 }, (_, i) => label(i)),
        world.call('/templates/delete', { name: 'Busy' }),
        ...Array.from({ length: 8 }, (_, i) => label(i)),
      ]);
      expect(await world.store.templateLabels.many({ account: ACCOUNT, name: 'Busy' })).to.deep.equal([]);
    });
  });
}

describe('templates/render', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const render = async (params: object = {}) =>
    (await world.call('/templates/render', { template_name: 'Letter', template_content: [], ...params })).body;
  const add = (code: string | null, more: object = {}) =>
    world.call('/templates/add', { name: 'Letter', code, ...more });

  it('renders the draft of an unpublished template, then the published version', async () => {
    await add('draft', { publish: false });
    expect(await render()).to.deep.equal({ html: 'draft' });
    await world.call('/templates/publish', { name: 'Letter' });
    await world.call('/templates/update', { name: 'Letter', code: 'new draft', publish: false });
    expect(await render()).to.deep.equal({ html: 'draft' });
    await world.call('/templates/update', { name: 'Letter' });
    expect(await render({ template_name: 'letter' })).to.deep.equal({ html: 'new draft' });
  });

  it('returns an empty text for a template without code', async () => {
    await add(null);
    expect(await render({ template_content: [{ name: 'a', content: 'b' }], merge_vars: [] })).to.deep.equal({
      html: '',
    });
  });

  it('leaves tags as they are without merge_vars, and replaces all with them, even with an empty list', async () => {
    await add('*|A|**|IF:A|*x*|END:IF|*');
    expect(await render()).to.deep.equal({ html: '*|A|**|IF:A|*x*|END:IF|*' });
    expect(await render({ merge_vars: null })).to.deep.equal({ html: '*|A|**|IF:A|*x*|END:IF|*' });
    expect(await render({ merge_vars: [] })).to.deep.equal({ html: '' });
    expect(await render({ merge_vars: [{ name: 'a', content: '<&>' }] })).to.deep.equal({ html: '<&>x' });
  });

  it('accepts values of every simple type', async () => {
    await add('[*|A|*]');
    for (const [content, html] of [
      [7, '[7]'],
      [1.5, '[1.5]'],
      [false, '[false]'],
      [null, '[]'],
      ['', '[]'],
      ['*|A|*', '[*|A|*]'],
    ] as const) {
      expect(await render({ merge_vars: [{ name: 'A', content }] }), String(content)).to.deep.equal({ html });
    }
    expect(await render({ merge_vars: [{ name: 'A' }] })).to.deep.equal({ html: '[]' });
    expect(await render({ merge_vars: [{ name: 'A', content: { b: 1 } }] })).to.include({ name: 'ValidationError' });
  });

  it('rejects names that begin with _, naming the position', async () => {
    await add('x');
    expect(
      await render({
        merge_vars: [
          { name: 'a', content: '' },
          { name: '_b', content: '' },
        ],
      }),
    ).to.deep.equal(refused('merge_vars', '[1].name: Merge variable names may not start with _'));
    expect(await render({ merge_vars: [{ content: 'x' }] })).to.deep.equal(
      refused('merge_vars', '[0].name: Please enter a value'),
    );
    expect(await render({ template_content: [{ name: 'a' }] })).to.deep.equal(
      refused('template_content', '[0].content: Please enter a value'),
    );
  });

  it('uses the last of two values with one name', async () => {
    await add('<b mc:edit="r"></b>*|A|*');
    const content = [
      { name: 'r', content: '1' },
      { name: 'r', content: '2' },
    ];
    expect(
      await render({
        template_content: content,
        merge_vars: [
          { name: 'a', content: '3' },
          { name: 'A', content: '4' },
        ],
      }),
    ).to.deep.equal({ html: '<b>2</b>4' });
  });

  it('uses the date of the clock', async () => {
    await add('*|DATE:Y-m-d H:i|* *|CURRENT_YEAR|*');
    expect(await render({ merge_vars: [] })).to.deep.equal({ html: '2026-01-05 12:00 2026' });
  });

  it('rejects oversize results, naming the cause', async () => {
    await add('<b mc:edit=r></b>'.repeat(100) + '*|A|*'.repeat(100));
    const content = 'x'.repeat(200_000);
    const words = 'The rendered template would be longer than 10000000 characters';
    expect(await render({ template_content: [{ name: 'r', content }] })).to.deep.equal(
      refused('template_content', words),
    );
    expect(await render({ merge_vars: [{ name: 'a', content }] })).to.deep.equal(refused('merge_vars', words));
  });
});
