// The page's start: makes the parts and connects them.
import { byId, announce, notify } from './dom.js';
import { Store, readSetting } from './store.js';
import { Tabs } from './tabs.js';
import { Library } from './library.js';
import { Models } from './models.js';
import { Chat } from './chat.js';
import { Sidebar } from './sidebar.js';
import { Settings, applyTheme } from './settings.js';
import { Watch } from './watch.js';
import { isComposing, shortcutOf } from './shortcuts.js';

applyTheme(readSetting('theme', 'auto'));

/** Shows or hides the list of conversations where it lies over the chat. */
function showSidebar(shown) {
  byId('sidebar').classList.toggle('shown', shown);
  byId('sidebar-toggle').setAttribute('aria-expanded', String(shown));
}

/** One panel at most is open beside the chat. */
function togglePanel(panels, name, open = panels[name].node.hidden) {
  for (const [other, panel] of Object.entries(panels)) {
    const shown = open && other === name;
    if (panel.node.hidden === !shown) continue;
    panel.node.hidden = !shown;
    byId(`${other}-toggle`).setAttribute('aria-expanded', String(shown));
    if (shown) panel.render();
    else panel.close?.();
  }
  document.body.classList.toggle('with-panel', open);
}

function connectKeys(chat, library, panels) {
  const actions = {
    KeyN: () => {
      library.openNew();
      byId('question').focus();
    },
    KeyE: () => chat.editLast(),
    KeyM: () => togglePanel(panels, 'watch'),
    KeyS: () => togglePanel(panels, 'settings'),
  };
  document.addEventListener('keydown', (event) => {
    if (isComposing(event)) return;
    if (event.key === 'Escape' && !byId('key-dialog').open && !event.target.closest?.('.edit')) {
      if (chat.running) chat.stop();
      else if (byId('sidebar').classList.contains('shown')) showSidebar(false);
      else togglePanel(panels, 'watch', false);
    }
    const action = actions[shortcutOf(event)];
    if (!action) return;
    event.preventDefault();
    if (event.target.closest?.('#settings')) event.target.blur(); // what was typed there takes effect
    action();
  });
}

/** Models read text. A file that is dropped would else take the page's place. */
function refuseFiles() {
  const refuse = (event) => {
    const data = event.dataTransfer ?? event.clipboardData;
    if (!data?.types.includes('Files') || data.types.includes('text/plain')) return;
    event.preventDefault();
    if (event.type !== 'dragover') notify('Files cannot be sent: models are asked with text. Paste the text of the file.');
  };
  for (const type of ['dragover', 'drop', 'paste']) document.addEventListener(type, refuse);
}

async function start() {
  const tabs = new Tabs();
  const library = new Library(new Store(), tabs);
  await library.load();
  const models = new Models();
  const chat = new Chat(library, models, tabs);
  const panels = { watch: new Watch(models), settings: new Settings(library) };
  const sidebar = new Sidebar(library, () => {
    showSidebar(false);
    byId('question').focus();
  });
  let shown = null;
  library.onChange((conversation) => {
    if (conversation === shown) chat.render();
    if (shown === library.current) return;
    shown = library.current;
    chat.render();
    announce(shown.title || 'New conversation');
  });
  models.onChange(() => {
    chat.render();
    panels.watch.follow();
  });
  for (const name of Object.keys(panels)) {
    byId(`${name}-toggle`).addEventListener('click', () => togglePanel(panels, name));
  }
  byId('sidebar-toggle').addEventListener('click', () => showSidebar(!byId('sidebar').classList.contains('shown')));
  connectKeys(chat, library, panels);
  refuseFiles();
  shown = library.current;
  sidebar.render();
  chat.render();
  byId('question').focus();
  await models.load();
}

start();
