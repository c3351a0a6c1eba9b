import { expect } from 'chai';
import { ACCOUNT, type ApiWorld, OTHER_KEY, putDeadDelivery, startApi } from '../../support/api.ts';
import { putMessages } from '../../support/messages.ts';
import { crlf, multipart } from '../../support/mime.ts';
import { nested } from '../../support/mime-hostile.ts';
import { put } from '../../support/spool.ts';
import { putBatch } from '../../support/webhooks.ts';

const FROM = 'From: a@example.com';

describe('the content of an inbound message', function () {
  this.timeout(20_000);
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const putMail = async (bytes: Buffer) =>
    (await put(world.spool, world.clock, { account: ACCOUNT, body: { kind: 'memory', bytes } })).delivery.id;
  const content = async (bytes: Buffer) => {
    const { status, body } = await world.call('/inbound/content', { id: await putMail(bytes) });
    expect(status).to.equal(200);
    return body;
  };
  const valueOf = (shown: { headers: { name: string; value: string }[] }, name: string) =>
    shown.headers.find((field) => field.name === name)?.value;

  it('includes every header field, unfolded and decoded, ours first', async () => {
    const shown = await content(
      crlf(
        'Received: from elsewhere',
        'Subject: =?iso-8859-1?Q?Gr=FC=DFe?=',
        '  =?utf-8?B?4pyT?= and more',
        'X-Empty:',
        'subject: another',
        '',
        'x',
      ),
    );
    expect(shown.headers).to.deep.equal([
      { name: 'Received', value: 'from there' },
      { name: 'Received', value: 'from elsewhere' },
      { name: 'Subject', value: 'Grüße✓ and more' },
      { name: 'X-Empty', value: '' },
      { name: 'subject', value: 'another' },
    ]);
  });

  it('lists each part by its IMAP number, with decoded size and name', async () => {
    const file = (name: string) => [
      'Content-Type: application/pdf',
      `Content-Disposition: attachment;${name}`,
      '',
      'x',
    ];
    const inner = multipart(
      'alternative',
      [],
      ['', 'plain'],
      ['Content-Type: text/html', '', '<p>html</p>'],
    ).toString();
    const shown = await content(
      multipart(
        'mixed; x=y',
        [FROM],
        [inner.replaceAll('=_b', '=_inner').trimEnd()],
        ['Content-Type: image/png', 'Content-Disposition: inline', 'Content-Transfer-Encoding: base64', '', 'AAAA'],
        file(' filename="=?utf-8?Q?Rechnung_=E2=82=AC.pdf?="'),
        file(" filename*0*=iso-8859-1'de'%DCber; filename*1=sicht; filename*2*=%2epdf"),
        file(" filename*=utf-8''%e2%82%ac.pdf"),
        file(' filename="..\\\\..\\\\a\u202efdp.exe"'),
        ['Content-Type: message/rfc822', '', 'Subject: inside', '', 'x'],
      ),
    );
    expect(shown.parts.map((part: { n: number }) => part.n)).to.deep.equal([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(
      shown.parts.map(({ path, type, name, size, disposition }: any) => [path, type, name, size, disposition]),
    ).to.deep.equal([
      ['1.1', 'text/plain', null, 5, null],
      ['1.2', 'text/html', null, 11, null],
      ['2', 'image/png', null, 3, 'inline'],
      ['3', 'application/pdf', 'Rechnung €.pdf', 1, 'attachment'],
      ['4', 'application/pdf', 'Übersicht.pdf', 1, 'attachment'],
      ['5', 'application/pdf', '€.pdf', 1, 'attachment'],
      ['6', 'application/pdf', 'afdp.exe', 1, 'attachment'],
      ['7', 'message/rfc822', null, 20, null],
    ]);
    expect(shown).to.include({ text: 'plain\n', has_html: true, truncated: false, parse_error: null });
  });

  it('is one part without a multipart, and has no text for a file', async () => {
    expect(await content(crlf(FROM, '', 'x'))).to.deep.include({
      parts: [{ n: 1, path: '1', type: 'text/plain', name: null, size: 3, disposition: null }],
      has_html: false,
    });
    const file = await content(crlf(FROM, 'Content-Type: application/pdf; name=a.pdf', '', 'x'));
    expect(file.parts).to.deep.equal([
      { n: 1, path: '1', type: 'application/pdf', name: 'a.pdf', size: 3, disposition: null },
    ]);
    expect(file.text).to.equal(null);
  });

  it('is served as plain text, whatever a browser would make of it', async () => {
    const markup = '<img src=x onerror=alert(1)>"\'&amp;\u2028.';
    const id = await putMail(
      crlf(
        `Subject: ${markup}`,
        `X-Control: =?utf-8?Q?=00=1B[31m=E2=80=AE=07?=`,
        `Content-Type: text/plain; name="${markup}"`,
        '',
        '</script>\u0000\u001b[2J',
      ),
    );
    const { body, headers } = await world.call('/inbound/content', { id });
    expect(headers.get('content-type')).to.equal('application/json; charset=utf-8');
    expect(headers.get('x-content-type-options')).to.equal('nosniff');
    expect(valueOf(body, 'Subject')).to.equal(markup);
    expect(valueOf(body, 'X-Control')).to.equal('\u0000\u001b[31m\u202e\u0007');
    expect(body.text).to.contain('</script>\u0000\u001b[2J');
    expect(body.parts[0].name, 'a name is safe to save under').to.not.match(/[\u2028/\\]/);
  });

  for (const [why, bytes] of [
    ['more than 1000 parts', multipart('mixed', [FROM], ...Array.from({ length: 10_000 }, () => ['', 'x']))],
    ['parts nested more than 64 deep', nested(2000)],
    ['a header of more than 1000 fields', crlf(FROM, ...Array.from({ length: 2000 }, () => 'X-A: b'), '', 'x')],
    ['a header of more than 262144 bytes', crlf(FROM, `X-Long: ${'a'.repeat(262_144)}`, '', 'x')],
  ] as const) {
    it(`of ${why} is not parsed; the header is shown with the reason`, async () => {
      const shown = await content(bytes);
      expect(shown).to.deep.include({ parse_error: why, parts: [], text: null, has_html: false });
      expect(shown.raw_bytes).to.equal(bytes.length);
      expect(valueOf(shown, 'From')).to.equal('a@example.com');
    });
  }

  it('needs neither a header nor a body', async () => {
    expect(await content(Buffer.alloc(0))).to.include({ raw_bytes: 0, parse_error: null });
    expect(await content(crlf(' no field', 'here'))).to.include({ text: ' no field\nhere\n' });
  });

  it('is not found for another account, or for an id of other mail', async () => {
    const id = await putDeadDelivery(world);
    await putMessages(world, ACCOUNT);
    await putBatch(world.spool, ACCOUNT);
    const others = (await world.spool.list({ kinds: ['outbound', 'events'] }, 10)).map((one) => one.id);
    expect(others).to.have.length.above(1);
    for (const path of ['/inbound/content', '/inbound/payload']) {
      expect((await world.call(path, { key: OTHER_KEY, id })).body).to.include({ name: 'Unknown_Message', code: 11 });
      for (const other of others)
        expect((await world.call(path, { id: other })).body).to.include({ name: 'Unknown_Message' });
    }
  });

  it('is gone when the delivery is purged, even during a request', async () => {
    const id = await putDeadDelivery(world);
    const { message } = world.spool;
    const purge = () => world.spool.purge({ deliveredBefore: 8e15, deadBefore: 8e15, deliveredBytes: 0 });
    world.spool.message = async (...args) => {
      const found = await message(...args);
      await purge();
      return found && { ...found, body: { kind: 'file', path: '/nowhere/at/all', size: 1, sha256: '' } };
    };
    for (const path of ['/inbound/content', '/inbound/payload', '/inbound/content'])
      expect((await world.call(path, { id })).body, path).to.include({ name: 'Unknown_Message' });
    expect(world.log.of('api.fault')).to.deep.equal([]);
  });

  it('causes an internal error if the disk fails, without details of the disk', async () => {
    const id = await putDeadDelivery(world);
    const { message } = world.spool;
    world.spool.message = async (...args) => {
      const found = await message(...args);
      return found && { ...found, body: { kind: 'file', path: '/nowhere/at/all', size: 1, sha256: '' } };
    };
    for (const path of ['/inbound/content', '/inbound/payload']) {
      const { status, body } = await world.call(path, { id });
      expect({ status, name: body.name }).to.deep.equal({ status: 500, name: 'GeneralError' });
      expect(JSON.stringify(body)).not.to.contain('nowhere');
    }
    expect(world.log.of('api.fault')).to.have.length(2);
  });

  it('has the verdicts of its first attempt in its event, not current ones', async () => {
    const { body } = await world.call('/inbound/payload', { id: await putDeadDelivery(world) });
    expect(body.msg).to.deep.include({ spf: { result: 'pass', detail: 'sender SPF authorized' } });
    const { body: fresh } = await world.call('/inbound/payload', { id: await putMail(crlf(FROM, '', 'x')) });
    expect(fresh.msg.spf.result, 'nobody answers there').to.equal('temperror');
    const [delivery] = await world.spool.list({ states: ['waiting'] }, 1);
    expect((await world.spool.message(delivery?.messageId ?? ''))?.message.verdicts, 'kept nowhere').to.equal(null);
  });
});
