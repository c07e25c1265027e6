// The only place that turns strings into HTML or script URLs. The page's security policy forbids it elsewhere (S12).

interface Policy {
  createHTML(text: string): unknown;
  createScriptURL(text: string): unknown;
}

const factory = (globalThis as { trustedTypes?: { createPolicy(name: string, rules: object): Policy } }).trustedTypes;
const rules = {
  createHTML: (text: string) => text,
  createScriptURL: (text: string) => {
    const url = new URL(text, location.href);
    if (url.origin !== location.origin || !url.pathname.startsWith('/assets/')) throw new Error(`not a script of this page: ${text}`);
    return text;
  },
};
const policy: Policy = factory ? factory.createPolicy('regatta', rules) : rules;

/** Sets the HTML of an element. The daemon rendered it and escaped every tag in the agent's text. */
export function setHtml(element: Element, markup: string): void {
  element.innerHTML = policy.createHTML(markup) as string;
}

export function scriptUrl(text: string): URL {
  return policy.createScriptURL(text) as URL;
}
