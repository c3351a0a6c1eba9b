import { expect } from 'chai';
import { parseMcHeaders } from '../../../src/mail/mc-headers.ts';
import { parseHeaders } from '../../../src/mail/mime/headers.ts';
import { toExtras } from '../../../src/mail/outgoing.ts';

const parse = (...lines: string[]) => parseMcHeaders(parseHeaders(Buffer.from(`${lines.join('\r\n')}\r\n`)));

describe('the X-MC-* fields of a message', () => {
  it('set no options when absent', () => {
    expect(parse('From: a@b.test', 'X-Mailer: x')).to.deep.equal({
      tags: [],
      track: null,
      autoText: null,
      template: null,
      globalVars: null,
      rcptVars: {},
      mergeLanguage: null,
      metadata: {},
      rcptMetadata: {},
      preserveRecipients: false,
      important: false,
      signingDomain: null,
      subaccount: null,
      bcc: null,
      pool: null,
      sendAt: null,
      ignored: [],
      extras: {
        inlineCss: null,
        autoHtml: null,
        stripQuery: null,
        viewContent: null,
        trackingDomain: null,
        returnPathDomain: null,
        analyticsDomains: [],
        analyticsCampaign: null,
      },
    });
  });

  it('are recognised in any case, folded and encoded', () => {
    expect(parse('x-mc-TAGS: one,\r\n two', 'X-MC-Subaccount: =?UTF-8?Q?k=C3=B6ln?=')).to.deep.include({
      tags: ['one', 'two'],
      subaccount: 'köln',
    });
  });

  it('set tags, each once, without long or reserved ones', () => {
    const { tags, ignored } = parse(`X-MC-Tags: a, b,,a , _x, ${'y'.repeat(51)}`, 'X-MC-Tags: c');
    expect(tags).to.deep.equal(['a', 'b', 'c']);
    expect(ignored).to.deep.equal(['X-MC-Tags']);
  });

  for (const [value, track] of [
    ['opens', { opens: true, clicks: 'none' }],
    ['clicks', { opens: false, clicks: 'all' }],
    ['opens,clicks_all', { opens: true, clicks: 'all' }],
    ['opens, clicks_htmlonly', { opens: true, clicks: 'html' }],
    ['CLICKS_TEXTONLY', { opens: false, clicks: 'text' }],
    ['none', { opens: false, clicks: 'none' }],
  ] as const) {
    it(`set tracking by "${value}"`, () => {
      expect(parse(`X-MC-Track: ${value}`).track).to.deep.equal(track);
    });
  }

  for (const [words, value] of [
    [['true', 'On', 'YES', 'y', '1'], true],
    [['false', 'off', 'no', 'N', '0'], false],
  ] as const) {
    it(`read ${value} as ${words.join(', ')}`, () => {
      for (const word of words) {
        expect(parse(`X-MC-Autotext: ${word}`).autoText).to.equal(value);
        expect(parse(`X-MC-PreserveRecipients: ${word}`, `X-MC-Important: ${word}`)).to.deep.include({
          preserveRecipients: value,
          important: value,
        });
      }
    });
  }

  it('set a template and its block', () => {
    expect(parse('X-MC-Template: my-template').template).to.deep.equal({ name: 'my-template', block: 'main' });
    expect(parse('X-MC-Template: my template | body').template).to.deep.equal({ name: 'my template', block: 'body' });
    expect(parse('X-MC-Template: |body')).to.deep.include({ template: null, ignored: ['X-MC-Template'] });
  });

  it('set merge variables for all and for one recipient, repeatedly', () => {
    const { globalVars, rcptVars, ignored } = parse(
      'X-MC-MergeVars: {"fname":"John","n":1,"yes":true,"nothing":null}',
      'X-MC-MergeVars: {"_rcpt":"Jörg@MÜNCHEN.test","fname":"J"}',
      'X-MC-MergeVars: {"_rcpt":"jörg@münchen.test","lname":"K"}',
      'X-MC-MergeVars: {"fname":"Jane"}',
    );
    expect(globalVars).to.deep.equal([
      { name: 'fname', content: 'Jane' },
      { name: 'n', content: '1' },
      { name: 'yes', content: 'true' },
      { name: 'nothing', content: '' },
    ]);
    expect(rcptVars).to.deep.equal({
      'jörg@xn--mnchen-3ya.test': [
        { name: 'fname', content: 'J' },
        { name: 'lname', content: 'K' },
      ],
    });
    expect(ignored).to.deep.equal([]);
  });

  it('enable merging when variables for one recipient are given', () => {
    expect(parse('X-MC-MergeVars: {"_rcpt":"a@b.test","x":"y"}').globalVars).to.deep.equal([]);
  });

  it('set the merge language; only handlebars accepts lists and structs', () => {
    expect(parse('X-MC-MergeLanguage: Handlebars').mergeLanguage).to.equal('handlebars');
    expect(parse('X-MC-MergeLanguage: mailchimp').mergeLanguage).to.equal('mailchimp');
    expect(parse('X-MC-MergeLanguage: mustache')).to.deep.include({
      mergeLanguage: null,
      ignored: ['X-MC-MergeLanguage'],
    });
    const vars = 'X-MC-MergeVars: {"list":[1,{"a":null}],"yes":true,"n":1}';
    expect(parse('X-MC-MergeLanguage: handlebars', vars)).to.deep.include({
      ignored: [],
      globalVars: [
        { name: 'list', content: [1, { a: null }] },
        { name: 'yes', content: true },
        { name: 'n', content: 1 },
      ],
    });
    expect(parse(vars)).to.deep.include({
      ignored: ['X-MC-MergeVars'],
      globalVars: [
        { name: 'yes', content: 'true' },
        { name: 'n', content: '1' },
      ],
    });
    const deep = `X-MC-MergeVars: {"deep":${'['.repeat(20_000)}${']'.repeat(20_000)},"n":1}`;
    expect(parse('X-MC-MergeLanguage: handlebars', deep)).to.deep.include({
      ignored: ['X-MC-MergeVars'],
      globalVars: [{ name: 'n', content: 1 }],
    });
  });

  it('cannot reach the internals of objects', () => {
    const { rcptVars, metadata } = parse(
      'X-MC-MergeVars: {"_rcpt":"__proto__@b.test","__proto__":"x","constructor":"y"}',
      'X-MC-Metadata: {"__proto__":"z"}',
    );
    expect(Object.getPrototypeOf(rcptVars)).to.equal(Object.prototype);
    expect(Object.keys(rcptVars)).to.deep.equal(['__proto__@b.test']);
    expect(Object.entries(metadata)).to.deep.equal([['__proto__', 'z']]);
    expect({}).to.not.have.property('z');
  });

  it('set metadata, flat and of at most 200 bytes', () => {
    expect(parse('X-MC-Metadata: {"user_id":12,"group":"a"}').metadata).to.deep.equal({ user_id: 12, group: 'a' });
    expect(parse('X-MC-Metadata: {"_rcpt":"A@b.test","user_id":1}').rcptMetadata).to.deep.equal({
      'a@b.test': { user_id: 1 },
    });
    expect(parse(`X-MC-Metadata: {"x":"${'é'.repeat(100)}"}`)).to.deep.include({
      metadata: {},
      ignored: ['X-MC-Metadata'],
    });
    expect(parse('X-MC-Metadata: {"a":{"b":1},"c":"d"}')).to.deep.include({
      metadata: { c: 'd' },
      ignored: ['X-MC-Metadata'],
    });
  });

  it('set a send time', () => {
    expect(parse('X-MC-SendAt: 2026-02-28 10:20:30').sendAt).to.deep.equal(new Date('2026-02-28T10:20:30Z'));
    for (const wrong of [
      '2026-02-30 10:20:30',
      'tomorrow',
      '2026-02-28T10:20:30',
      '2026-13-01 00:00:00',
      '2026-02-28 25:00:00',
    ]) {
      expect(parse(`X-MC-SendAt: ${wrong}`)).to.deep.include({ sendAt: null, ignored: ['X-MC-SendAt'] });
    }
  });

  it('set a domain, a pool and a copy', () => {
    expect(
      parse('X-MC-SigningDomain: MAIL.example.com', 'X-MC-IpPool: Main Pool', 'X-MC-BccAddress: Boss@example.com'),
    ).to.deep.include({
      signingDomain: 'mail.example.com',
      pool: 'Main Pool',
      bcc: 'Boss@example.com',
      ignored: [],
    });
  });

  for (const line of [
    'X-MC-Track: everything',
    'X-MC-Autotext: maybe',
    'X-MC-MergeVars: {',
    'X-MC-MergeVars: []',
    'X-MC-MergeVars: "x"',
    'X-MC-MergeVars: {"_rcpt":1,"a":"b"}',
    'X-MC-MergeVars: {"_rcpt":"nobody","a":"b"}',
    'X-MC-MergeVars: {"a b":"c"}',
    'X-MC-MergeVars: {"list":[1]}',
    'X-MC-Metadata: 12',
    'X-MC-SigningDomain: no domain',
    'X-MC-BccAddress: nobody',
    'X-MC-BccAddress: a@[127.0.0.1]',
    'X-MC-Important: 17',
  ]) {
    it(`are ignored with a note when malformed (${line})`, () => {
      const options = parse(line);
      expect(options.ignored).to.deep.equal([line.split(':')[0]]);
      expect(options).to.deep.include({
        track: null,
        autoText: null,
        metadata: {},
        rcptVars: {},
        signingDomain: null,
        bcc: null,
        important: false,
      });
      expect(options.globalVars ?? []).to.deep.equal([]);
    });
  }

  it('set rare options', () => {
    const { extras, ignored } = parse(
      'X-MC-InlineCSS: true',
      'X-MC-AutoHtml: on',
      'X-MC-URLStripQS: y',
      'X-MC-ViewContentLink: no',
      'X-MC-TrackingDomain: Clicks.Test',
      'X-MC-ReturnPathDomain: Bücher.test',
      'X-MC-GoogleAnalytics: a.test, B.test.,',
      'X-MC-GoogleAnalytics: a.test',
      'X-MC-GoogleAnalyticsCampaign: =?utf-8?Q?Gr=C3=B6=C3=9Fe?=',
    );
    expect(toExtras(extras)).to.deep.equal({
      extras: {
        inlineCss: true,
        autoHtml: true,
        stripQuery: true,
        hideContent: true,
        trackingDomain: 'clicks.test',
        returnPathDomain: 'xn--bcher-kva.test',
        analytics: { domains: ['a.test', 'b.test'], campaign: 'Größe' },
      },
    });
    expect(ignored).to.deep.equal([]);
    expect(
      toExtras(
        parse(
          'X-MC-InlineCSS: no',
          'X-MC-AutoHtml: false',
          'X-MC-ViewContentLink: on',
          'X-MC-GoogleAnalyticsCampaign: x',
          'X-MC-GoogleAnalytics:',
        ).extras,
      ),
    ).to.deep.equal({});
  });

  for (const line of [
    'X-MC-InlineCSS: maybe',
    'X-MC-AutoHtml: 7',
    'X-MC-URLStripQS: {}',
    'X-MC-ViewContentLink: hidden',
    'X-MC-TrackingDomain: no domain',
    'X-MC-TrackingDomain: 192.0.2.1',
    'X-MC-TrackingDomain: [::1]',
    'X-MC-TrackingDomain: https://a.test',
    'X-MC-TrackingDomain: a.test:80',
    'X-MC-ReturnPathDomain: a@b.test',
    'X-MC-ReturnPathDomain: 127.1',
    'X-MC-ReturnPathDomain: =?utf-8?Q?a=0D=0Ab.test?=',
    `X-MC-ReturnPathDomain: ${'a.'.repeat(150)}test`,
    'X-MC-GoogleAnalytics: 192.0.2.1',
    'X-MC-GoogleAnalytics: localhost:3000',
    'X-MC-GoogleAnalytics: http://a.test/',
    'X-MC-GoogleAnalyticsCampaign: =?utf-8?Q?a=0D=0Ab?=',
    `X-MC-GoogleAnalyticsCampaign: ${'x'.repeat(256)}`,
  ]) {
    it(`set nothing when malformed (${line.slice(0, 60)})`, () => {
      const { extras, ignored } = parse(line);
      expect([toExtras(extras), ignored]).to.deep.equal([{}, [line.split(':')[0]]]);
    });
  }

  it('limit the hosts for analytics', () => {
    const { extras, ignored } = parse(
      `X-MC-GoogleAnalytics: ${Array.from({ length: 150 }, (_, n) => `a${n}.test`).join(',')}`,
    );
    expect([extras.analyticsDomains?.length, ignored]).to.deep.equal([100, ['X-MC-GoogleAnalytics']]);
  });
});
