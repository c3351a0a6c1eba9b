import { expect } from 'chai';
import { runToEnd } from '../../../src/base/concurrency.ts';
import { formatDate, merging, render, toVars } from '../../../src/mail/merge/merge.ts';
import { RenderedTooLong } from '../../../src/mail/template-errors.ts';
import { repeated } from '../../support/growth.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';

const merge = (...args: Parameters<typeof merging>) => runToEnd(merging(...args));

const now = new Date('2026-01-05T14:07:09Z');
const VARS = {
  name: 'Ann',
  Order_Id: '42',
  count: '10',
  price: '9.5',
  empty: '',
  zero: '0',
  city: 'são paulo',
  html: '<b>"A&B"</b>',
  tag: '*|NAME|*',
  'first-name': 'F',
  'a.b': 'dot',
};
const vars = (values: Record<string, string>) =>
  toVars(Object.entries(values).map(([name, content]) => ({ name, content })));
const run = (text: string, values: Record<string, string> = VARS) => merge(text, vars(values), { now });

/** Texts and what becomes of them. */
const MERGED: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'puts in values': {
    'Dear *|NAME|*!': 'Dear Ann!',
    '*|name|**|Name|*': 'AnnAnn',
    '*|ORDER_ID|*': '42',
    '*|first-name|* *|A.B|*': 'F dot',
    '*|ZERO|*': '0',
    '*|html|*': '<b>"A&B"</b>',
    '*|TAG|*': '*|NAME|*',
    '<a href="*|name|*">': '<a href="Ann">',
  },
  'makes what it does not know empty': {
    'a*|NOPE|*b': 'ab',
    '*|MC:SUBJECT|*': '',
    '*|UPPER:NOPE|*': '',
    '*|UPPER:|*': '',
    '*|END:OF|*': '',
    '*|EMPTY|*': '',
    '*|constructor|**|__proto__|*': '',
  },
  'leaves what is no tag': {
    '*|': '*|',
    '|*': '|*',
    '*||*': '*||*',
    '*| NAME |*': '*| NAME |*',
    '*|NA ME|*': '*|NA ME|*',
    '*|NAME': '*|NAME',
    'NAME|*': 'NAME|*',
    '*|NAME|': '*|NAME|',
    '*NAME*': '*NAME*',
    '*|NA\nME|*': '*|NA\nME|*',
    '*|<b>|*': '*|<b>|*',
    '/*| a { b: c } |*/': '/*| a { b: c } |*/',
    [`*|${'a'.repeat(3000)}|*`]: `*|${'a'.repeat(3000)}|*`,
    '*|:x|*': '*|:x|*',
  },
  'finds a tag behind what looks like one': {
    '*|*|NAME|*': '*|Ann',
    '*|NAME|*|*': 'Ann|*',
    '*|x *|NAME|*': '*|x Ann',
    '*|NAME|**|NAME|*': 'AnnAnn',
    '**|NAME|**': '*Ann*',
    '*|a b|*|NAME|*': '*|a b|Ann',
  },
  filters: {
    '*|UPPER:NAME|* *|lower:name|*': 'ANN ann',
    '*|TITLE:CITY|*': 'São Paulo',
    '*|URL:HTML|*': '%3Cb%3E%22A%26B%22%3C%2Fb%3E',
    '*|HTML:HTML|*': '<b>"A&B"</b>',
    '*|UPPER:CITY|*': 'SÃO PAULO',
  },
  'shows what a condition allows': {
    '*|IF:NAME|*a*|END:IF|*b': 'ab',
    '*|IF:NOPE|*a*|END:IF|*b': 'b',
    '*|IF:EMPTY|*a*|END:IF|*b': 'b',
    '*|if:zero|*a*|end:if|*': 'a',
    '*|IFNOT:NAME|*a*|END:IF|*b': 'b',
    '*|IFNOT:NOPE|*a*|END:IF|*b': 'ab',
    '*|IF:NAME|*a*|ELSE:|*b*|END:IF|*c': 'ac',
    '*|IF:NOPE|*a*|ELSE:|*b*|END:IF|*c': 'bc',
    '*|IF:NOPE|*a*|ELSE|*b*|END:IF|*c': 'bc',
    '*|IFNOT:NAME|*a*|ELSE:|*b*|END:IF|*c': 'bc',
    '*|IF:NOPE|*a*|ELSEIF:NAME|*b*|ELSE:|*c*|END:IF|*': 'b',
    '*|IF:NAME|*a*|ELSEIF:COUNT|*b*|ELSE:|*c*|END:IF|*': 'a',
    '*|IF:NOPE|*a*|ELSEIF:NOPE|*b*|ELSEIF:COUNT=10|*c*|ELSEIF:NAME|*d*|END:IF|*': 'c',
    '*|IF:NAME|*Dear *|NAME|*, *|UPPER:NAME|**|END:IF|*': 'Dear Ann, ANN',
  },
  compares: {
    '*|IF:NAME=Ann|*y*|END:IF|*': 'y',
    '*|IF:NAME=ann|*y*|END:IF|*': '',
    '*|IF:NAME!=Bob|*y*|END:IF|*': 'y',
    '*|IF:NAME != Ann|*y*|END:IF|*': '',
    '*|IF:NAME = Ann |*y*|END:IF|*': 'y',
    '*|IF:COUNT>9|*y*|END:IF|*': 'y',
    '*|IF:COUNT>10|*y*|END:IF|*': '',
    '*|IF:COUNT >= 10|*y*|END:IF|*': 'y',
    '*|IF:COUNT<9|*y*|END:IF|*': '',
    '*|IF:COUNT<=10.0|*y*|END:IF|*': 'y',
    '*|IF:PRICE<10|*y*|END:IF|*': 'y',
    '*|IF:COUNT&gt;9|*y*|END:IF|*': 'y',
    '*|IF:COUNT &lt;= 9|*y*|END:IF|*': '',
    '*|IF:NAME<Bob|*y*|END:IF|*': 'y',
    '*|IF:NAME>9|*y*|END:IF|*': 'y',
    '*|IF:COUNT=10.0|*y*|END:IF|*': '',
    '*|IF:NAME=|*y*|END:IF|*': '',
    '*|IF:NAME!=|*y*|END:IF|*': 'y',
  },
  'takes every comparison of what has no value for false': {
    '*|IF:NOPE=|*y*|END:IF|*': '',
    '*|IF:NOPE!=a|*y*|END:IF|*': '',
    '*|IF:NOPE<5|*y*|END:IF|*': '',
    '*|IF:NOPE>5|*y*|END:IF|*': '',
    '*|IF:EMPTY!=a|*y*|END:IF|*': '',
    '*|IF:|*y*|END:IF|*': '',
    '*|IF:=a|*y*|END:IF|*': '',
    '*|IF:a b c|*y*|END:IF|*': '',
  },
  'nests conditions': {
    '*|IF:NAME|*a*|IF:NOPE|*b*|ELSE:|*c*|END:IF|*d*|END:IF|*e': 'acde',
    '*|IF:NOPE|*a*|IF:NAME|*b*|ELSE:|*c*|END:IF|*d*|ELSE:|*e*|END:IF|*f': 'ef',
    '*|IF:NOPE|**|IF:NOPE|**|END:IF|*a*|END:IF|*b': 'b',
    '*|IF:NAME|**|IF:NAME|**|IF:NAME|*a*|END:IF|*b*|END:IF|*c*|END:IF|*d': 'abcd',
  },
  'makes the best of what does not fit together': {
    'a*|END:IF|*b': 'ab',
    'a*|ELSE:|*b*|END:IF|*c': 'abc',
    'a*|ELSEIF:NAME|*b': 'ab',
    '*|IF:NOPE|*a': '',
    '*|IF:NAME|*a': 'a',
    '*|IF:NAME|*a*|ELSE:|*b*|ELSE:|*c*|ELSEIF:NAME|*d*|END:IF|*e': 'ae',
    '*|IF:NOPE|*a*|ELSE:|*b*|ELSEIF:NAME|*c*|ELSE:|*d*|END:IF|*e': 'be',
  },
  'knows dates, in UTC': {
    '*|DATE:d/m/y|*': '05/01/26',
    '*|DATE:l, jS F Y \\a\\t g:i a|*': 'Monday, 5th January 2026 at 2:07 pm',
    '*|CURRENT_YEAR|*': '2026',
    '*|DATE:|*': '',
    '*|date:Y-m-d H:i:s|*': '2026-01-05 14:07:09',
  },
  'leaves the tag of a link that only a sending knows': {
    '*|UNSUB:https://a.example/x?y=1|*': '*|UNSUB:https://a.example/x?y=1|*',
    '*|unsub|*': '*|unsub|*',
    '*|IF:NOPE|**|UNSUB:a|**|END:IF|*': '',
  },
};

describe('merge tags', () => {
  for (const [what, texts] of Object.entries(MERGED)) {
    it(what, () => {
      for (const [text, expected] of Object.entries(texts)) expect(run(text), text).to.equal(expected);
    });
  }

  it('let a variable override a tag with a meaning of its own', () => {
    expect(run('*|CURRENT_YEAR|* *|UNSUB|* *|UNSUB:a|*', { current_year: '1999', unsub: 'link' })).to.equal(
      '1999 link *|UNSUB:a|*',
    );
  });

  it('return the link of a sending', () => {
    expect(merge('*|UNSUB:http://a.example|*', toVars([]), { now, onUnsub: (url) => `<${url}>` })).to.equal(
      '<http://a.example>',
    );
  });

  it('use the last of two variables with one name, in any case', () => {
    expect(
      merge(
        '*|A|*',
        toVars([
          { name: 'a', content: '1' },
          { name: 'A', content: '2' },
        ]),
        { now },
      ),
    ).to.equal('2');
  });

  it('give the same result wherever the work is interrupted', () => {
    const unit = 'x*|IF:NAME|*y*|ELSE:|*n*|END:IF|**|NAME|* *|';
    let rests = 0;
    const steps = merging(unit.repeat(20_000), vars(VARS), { now });
    for (let step = steps.next(); ; step = steps.next()) {
      if (step.done) {
        expect(step.value).to.equal('xyAnn *|'.repeat(20_000));
        break;
      }
      rests++;
    }
    expect(rests).to.be.above(20);
  });

  it('leave text without tags unchanged', () => {
    const random = randomFrom(3);
    const pieces = [
      '*',
      '|',
      '*|',
      ' |*',
      'NAME',
      ':',
      '\ud800',
      '\udc00',
      '\0',
      '\r\n',
      'ä',
      '<b>',
      '*| a',
      '||',
      '**',
    ];
    for (let round = 0; round < 2000; round++) {
      const text = randomText(random, pieces, 40).replaceAll(/\*\|([^|]*)\|\*/g, '*|\n$1|*');
      if (/\*\|[^|\n]+\|\*/.test(text)) continue;
      expect(run(text)).to.equal(text);
    }
  });

  it('reject a result above the limit', () => {
    const options = { now, maxLength: 99 };
    expect(merge('*|A|*'.repeat(9), vars({ a: 'x'.repeat(11) }), options)).to.have.length(99);
    expect(() => merge(`${'*|A|*'.repeat(9)}y`, vars({ a: 'x'.repeat(11) }), options)).to.throw(RenderedTooLong);
    expect(
      merge('*|IF:NOPE|*' + '*|A|*'.repeat(1000), vars({ a: 'x'.repeat(11) }), options),
      'what is hidden does not count',
    ).to.equal('');
    expect(() => run('*|URL:A|*'.repeat(100_000), { a: '%'.repeat(500_000) }), 'which would be 150 GB').to.throw(
      RenderedTooLong,
    );
  });

  it('handle two hundred thousand nested conditions', () => {
    const depth = 200_000;
    expect(run('*|IF:NAME|*'.repeat(depth) + 'x' + '*|END:IF|*'.repeat(depth) + 'y')).to.equal('xy');
    expect(
      run('*|IF:NAME|*'.repeat(depth) + '*|IF:NOPE|*x' + '*|ELSE:|*z*|END:IF|*'.repeat(depth) + 'y').replaceAll(
        'z',
        '',
      ),
    ).to.equal('y');
  });
});

describe('dates in merge tags', () => {
  const of = (time: string, format: string) => formatDate(new Date(time), format);

  it('support every letter of the format', () => {
    expect(of('2024-02-29T00:05:06.789Z', 'd D j l N S w z W F m M n t L o Y y')).to.equal(
      '29 Thu 29 Thursday 4 th 4 59 09 February 02 Feb 2 29 1 2024 2024 24',
    );
    expect(of('2024-02-29T00:05:06.789Z', 'a A g G h H i s e T P O Z I U')).to.equal(
      'am AM 12 0 12 00 05 06 UTC UTC +00:00 +0000 0 0 1709165106',
    );
    expect(of('2024-02-29T13:05:06Z', 'c | r | g h a')).to.equal(
      '2024-02-29T13:05:06+00:00 | Thu, 29 Feb 2024 13:05:06 +0000 | 1 01 pm',
    );
    expect(of('2100-03-01T00:00:00Z', 'L t z')).to.equal('0 31 59');
  });

  it('assign a week to the year of its Thursday', () => {
    expect(of('2021-01-03T12:00:00Z', 'o-W N')).to.equal('2020-53 7');
    expect(of('2024-12-30T12:00:00Z', 'o-W N')).to.equal('2025-01 1');
  });

  it('write days with their ordinal', () => {
    expect(
      ['01', '02', '03', '04', '11', '12', '13', '21', '22', '23', '31']
        .map((day) => of(`2026-01-${day}T00:00:00Z`, 'jS'))
        .join(' '),
    ).to.equal('1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 23rd 31st');
  });

  it('leave unknown letters, and ones after a backslash', () => {
    expect(of('2026-01-05T00:00:00Z', '\\Y\\\\ qQ!é 100% \\')).to.equal('Y\\ qQ!é 100% ');
  });
});

describe('rendering', () => {
  it('fills regions first, then replaces tags, including those in the contents', async () => {
    const input = {
      code: '<p mc:edit="editable">editable content</p>*|MERGE1|*',
      contents: new Map([['editable', '<div>content to inject *|MERGE1|*</div>']]),
      now,
    };
    expect(await render({ ...input, vars: vars({ merge1: 'merge1 content' }) })).to.deep.equal({
      html: '<p><div>content to inject merge1 content</div></p>merge1 content',
    });
    expect(await render({ ...input, vars: vars({}) }), 'variables, but none').to.deep.equal({
      html: '<p><div>content to inject </div></p>',
    });
    expect(await render({ ...input, vars: undefined }), 'no variables').to.deep.equal({
      html: '<p><div>content to inject *|MERGE1|*</div></p>*|MERGE1|*',
    });
  });

  it('leaves text unchanged when there is nothing to insert', async () => {
    const random = randomFrom(4);
    const pieces = ['<div mc:edit="x">', '</div>', '*|IF:A|*', '*|A|*', '*|', '|*', '<', '>', '\ud800', '\0', '\r\n'];
    for (let round = 0; round < 300; round++) {
      const code = randomText(random, pieces, 40);
      expect(await render({ code, contents: new Map(), vars: undefined, now })).to.deep.equal({ html: code });
    }
  });

  it('yields to other work at five megabytes', async () => {
    for (const unit of ['*|IF:A|*', '<div mc:edit=x>', '<']) {
      const rendered = render({
        code: `<p mc:edit=y>${repeated(unit, 5_000_000)}`,
        contents: new Map([['z', '']]),
        vars: vars({}),
        now,
      });
      let turns = 0;
      let done = false;
      void rendered.finally(() => {
        done = true;
      });
      while (!done) {
        await new Promise(setImmediate);
        turns++;
      }
      expect(turns, unit).to.be.above(100);
      expect(await rendered).to.have.property('html');
    }
  }).timeout(60_000);

  it('reports which input made it too long', async () => {
    const input = {
      code: '<p mc:edit=x></p>*|A|*',
      contents: new Map([['x', 'long']]),
      vars: vars({ a: 'longer' }),
      now,
    };
    expect(await render({ ...input, maxLength: 10 })).to.deep.equal({ tooLong: 'contents' });
    expect(await render({ ...input, maxLength: 16 })).to.deep.equal({ tooLong: 'vars' });
    expect(await render({ ...input, maxLength: 17 })).to.deep.equal({ html: '<p>long</p>longer' });
  });
});
