import { expect } from 'chai';
import { createAnalyticsTagging } from '../../../src/mail/links.ts';

const UTM = 'utm_source=transactional&utm_medium=email&utm_campaign=welcome';
const tag = createAnalyticsTagging(
  { domains: ['shop.example', 'xn--bcher-kva.example'], campaign: 'welcome' },
  'news@sender.example',
);

describe('links with analytics parameters', () => {
  for (const [url, tagged] of [
    ['https://shop.example', `https://shop.example?${UTM}`],
    ['http://SHOP.example/a', `http://SHOP.example/a?${UTM}`],
    ['https://shop.example:8443/', `https://shop.example:8443/?${UTM}`],
    ['https://shop.example/?a=1&b=two%20words', `https://shop.example/?a=1&b=two%20words&${UTM}`],
    ['https://shop.example/?', `https://shop.example/?${UTM}`],
    ['https://shop.example/?a&', `https://shop.example/?a&${UTM}`],
    ['https://shop.example/a?b=%zz#top?x=1', `https://shop.example/a?b=%zz&${UTM}#top?x=1`],
    ['https://shop.example/#utm_source=x', `https://shop.example/?${UTM}#utm_source=x`],
    ['https://shop.example./', `https://shop.example./?${UTM}`],
    ['https://Bücher.example/', `https://Bücher.example/?${UTM}`],
  ] as const) {
    it(`get missing parameters and stay as written: ${url}`, () => expect(tag(url)).to.equal(tagged));
  }

  it('take linear time for a query of a million parts without =', () => {
    const url = `https://shop.example/?${'a&'.repeat(500_000)}`;
    expect(tag(url) === `${url}${UTM}`).to.equal(true);
  });

  it('keep their own parameters', () => {
    expect(tag('https://shop.example/?utm_source=own&UTM_Medium=paper')).to.equal(
      'https://shop.example/?utm_source=own&UTM_Medium=paper&utm_campaign=welcome',
    );
    expect(tag('https://shop.example/?utm%5Fcampaign=own')).to.equal(
      'https://shop.example/?utm%5Fcampaign=own&utm_source=transactional&utm_medium=email',
    );
    expect(tag(`https://shop.example/?${UTM}`)).to.equal(undefined);
  });

  for (const url of [
    'https://other.example/',
    'https://www.shop.example/',
    'https://shop.example.evil.example/',
    'https://shop.example@evil.example/',
    'https://evil.example/?shop.example',
    'https://',
    'https://[::1',
    '',
  ]) {
    it(`to other hosts stay as they are: ${url}`, () => expect(tag(url)).to.equal(undefined));
  }

  it('have the sender as the campaign by default, and any text encoded', () => {
    expect(
      createAnalyticsTagging({ domains: ['a.example'], campaign: null }, 'news@sender.example')('http://a.example/'),
    ).to.match(/&utm_campaign=news%40sender\.example$/);
    expect(
      createAnalyticsTagging({ domains: ['a.example'], campaign: 'Größe & "x"#\ud800' }, 's')('http://a.example/'),
    ).to.match(/&utm_campaign=Gr%C3%B6%C3%9Fe%20%26%20%22x%22%23%EF%BF%BD$/);
  });
});
