// A page on which nothing can be decided any more: what it is about is gone, or the site was restored after it was
// loaded. It says so, and its buttons are off; what was written in it stays, to copy. Hook: [data-over].

export const RESTORED =
  "The site was restored from a backup after this page was loaded, so the page is out of date. " +
  "Copy what you typed, then reload the page.";
export const NOT_THERE =
  "This question was deleted, perhaps by a restore from a backup, or you may no longer see it. Copy what you " +
  "typed, then go to the list of runs.";
const WAY = "the list of runs";

// Say the sentence, and offer nothing any more.
export function closePage(main, sentence) {
  if (main.dataset.over === sentence) return;
  reopenPage(main);
  main.dataset.over = sentence;
  const head = main.querySelector(":scope > .top");
  if (head === null) main.prepend(bannerOf(sentence));
  else head.after(bannerOf(sentence));
  for (const button of main.querySelectorAll("form[method=post] button:is(:not([disabled]), [data-shielded])")) {
    delete button.dataset.shielded; // the shield's end is not to lift this
    button.disabled = true;
    button.dataset.off = "";
  }
}

// The site knows the page after all: whoever had signed in as somebody else is back.
export function reopenPage(main) {
  if (main.dataset.over === undefined) return;
  delete main.dataset.over;
  main.querySelector(":scope > .over").remove();
  for (const button of main.querySelectorAll("button[data-off]")) {
    button.disabled = false;
    delete button.dataset.off;
  }
}

function bannerOf(sentence) {
  const banner = document.createElement("p");
  banner.className = "note note--error over";
  banner.setAttribute("role", "alert");
  const said = document.createElement("span");
  const [before, ...after] = sentence.split(WAY);
  said.append(before);
  for (const rest of after) {
    const way = document.createElement("a");
    way.href = "/runs/";
    way.textContent = WAY;
    said.append(way, rest);
  }
  banner.append(said);
  return banner;
}
