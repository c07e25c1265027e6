// The one place where strings become markup or addresses of scripts. The page's policy lets nobody else do so (S12).

interface Policy {
  createHTML(text: string): unknown;
  createScriptURL(text: string): unknown;
}

const factory = (globalThis as { trustedTypes?: { createPolicy(name: string, rules: object): Policy } }).trustedTypes;
const rules = {
  createHTML: (text: string) => text,
  createScriptURL: (text: string) => {
    const url = new URL(text, location.href);
    if (url.origin !== location.origin || !url.pathname.startsWith('/assets/')) throw new Error('a foreign script');
    return text;
  },
};
const policy: Policy = factory ? factory.createPolicy('regatta', rules) : rules;

/** Puts markup that the daemon made of an agent's text into an element. The daemon leaves no tag of the text's own. */
export function setHtml(element: Element, markup: string): void {
  element.innerHTML = policy.createHTML(markup) as string;
}

/** Adds such markup at an element's end. */
export function appendHtml(element: Element, markup: string): void {
  element.insertAdjacentHTML('beforeend', policy.createHTML(markup) as string);
}

export function scriptUrl(text: string): URL {
  return policy.createScriptURL(text) as URL;
}
