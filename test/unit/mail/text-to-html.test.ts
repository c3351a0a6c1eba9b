import { expect } from 'chai';
import { toHtmlPage } from '../../../src/mail/compose/plain-text.ts';
import { RenderedTooLong } from '../../../src/mail/template-errors.ts';

const bodyOf = (text: string) => /<body>\n([^]*)<\/body>/.exec(toHtmlPage(text, 10_000_000))?.[1];

describe('plain text as HTML', () => {
  it('keeps paragraphs, line breaks and indents', () => {
    expect(bodyOf('One\r\ntwo\r\n\r\n \r\nThree\n  four  five\n\tsix\n')).to.equal(
      '<p>One<br>\ntwo</p>\n<p>Three<br>\n&nbsp;&nbsp;four&nbsp; five<br>\n&nbsp;&nbsp;&nbsp; six</p>\n',
    );
    expect(bodyOf('\n\n')).to.equal('');
  });

  it('is escaped, with clickable links', () => {
    expect(bodyOf(`<b>&amp; "x" 'y'</b>`)).to.equal('<p>&lt;b&gt;&amp;amp; &quot;x&quot; &#39;y&#39;&lt;/b&gt;</p>\n');
    expect(bodyOf('see (https://x.example/?a=1&b=2), or http://y.example.')).to.equal(
      '<p>see (<a href="https://x.example/?a=1&amp;b=2">https://x.example/?a=1&amp;b=2</a>), or <a href="http://y.example">http://y.example</a>.</p>\n',
    );
    expect(bodyOf('javascript:alert(1) https://x.example/"onclick=alert(1)')).to.equal(
      '<p>javascript:alert(1) <a href="https://x.example/">https://x.example/</a>&quot;onclick=alert(1)</p>\n',
    );
    expect(bodyOf('\udbff0; https://x.example/ \udbff')).to.equal(
      '<p>\ufffd0; <a href="https://x.example/">https://x.example/</a> \ufffd</p>\n',
    );
  });

  it('takes linear time, and is skipped if the result grows too long', () => {
    for (const text of ['\n', ' ', '\n ', '\t\n', 'https://x.example/ ', '&', ' \n\n'])
      expect(toHtmlPage(text.repeat(100_000), 100_000_000).length).to.be.greaterThan(60);
    expect(() => toHtmlPage('http://x.example '.repeat(100), 1000)).to.throw(RenderedTooLong);
  }).timeout(20_000);
});
